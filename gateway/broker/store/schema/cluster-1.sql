-- What the brokers of a cluster share in PostgreSQL, version 1, in a schema of its own. The version is in the table meta.

CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL);

-- The brokers that have been here. schema: where their own rows are. settings: those that may not differ between brokers, in JSON.
CREATE TABLE broker (id text PRIMARY KEY, schema text NOT NULL, settings text NOT NULL);

-- The JMS bridges that a broker owns. since: when that one became the owner. state: what the owner says of it, "" until it has begun to run it. problem: why it
-- could not. wanted: the state in which the next owner is to have it, "" for that of a start.
CREATE TABLE bridge (
    name text PRIMARY KEY, broker text NOT NULL, since timestamptz NOT NULL, state text NOT NULL, problem text NOT NULL, wanted text NOT NULL
);

-- How a broker has a bridge configured, whether it owns it or not, in JSON. reading: of the table reading, when its broker read that.
CREATE TABLE configuration (bridge text NOT NULL, broker text NOT NULL, described text NOT NULL, reading bigint NOT NULL, PRIMARY KEY (bridge, broker));

-- One row. A broker that wants the others to read their configurations again adds one to its number.
CREATE TABLE reading (number bigint NOT NULL);
INSERT INTO reading VALUES (0);
