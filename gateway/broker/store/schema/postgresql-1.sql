-- The tables of one broker in PostgreSQL, version 1, in a schema of its own. The version is in the table meta.
-- Texts are octets (UTF-8), because a header or a name may hold a NUL, which no text of PostgreSQL may.
-- No index but the keys, and one for what does not survive a restart: order, priorities, sizes and expiry are rebuilt from the scan at start.

-- version: of this schema. id: the store's, in every message id. next_seq: every seq below it may have been used.
-- clean: 0 while the store is in use.
CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL);

-- One row: who owns this broker. epoch: rises with each owner; every commit proves that it is still its own. node: the machine or process, as it is told.
-- session: the name of the owner's sessions (application_name), by which they are found and ended. released: given up in order, so that nobody need wait.
-- wanted: the node that has asked for it, "" for none.
CREATE TABLE owner (
    epoch bigint NOT NULL, node text NOT NULL, session text NOT NULL, since timestamptz NOT NULL, released boolean NOT NULL, wanted text NOT NULL
);

-- The commits of the owner, by which one is looked up whose answer was lost, and which are its signs of life. They are written to one of the two, and the
-- other is emptied, in turn: a row that is updated instead would leave a dead one each time, and those stay while anybody holds a snapshot.
CREATE TABLE commits_0 (epoch bigint NOT NULL, number bigint NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (epoch, number));
CREATE TABLE commits_1 (epoch bigint NOT NULL, number bigint NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (epoch, number));

-- The first thing that a transaction does. It waits for an owner that is just being replaced, and is waited for. It returns who wants to be the owner.
CREATE FUNCTION prove(mine bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    asker text;
BEGIN
    SELECT wanted INTO asker FROM owner WHERE epoch = mine FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'epoch % is over', mine USING ERRCODE = 'MQ001';
    END IF;
    RETURN asker;
END $$;

-- administered: 1 when an administrator gave the properties; 2 when it was removed, and its messages are being deleted.
CREATE TABLE destination (
    id bigint PRIMARY KEY, kind bigint NOT NULL, name bytea NOT NULL, properties bytea NOT NULL, administered bigint NOT NULL, crc bigint NOT NULL
);

CREATE TABLE subscription (
    id bigint PRIMARY KEY, destination bigint NOT NULL, client_id bytea NOT NULL, name bytea NOT NULL, selector bytea NOT NULL,
    no_local bigint NOT NULL, crc bigint NOT NULL
);

CREATE TABLE branch (
    id bigint PRIMARY KEY, format bigint NOT NULL, gtrid bytea NOT NULL, bqual bytea NOT NULL, state bigint NOT NULL, since bigint NOT NULL,
    username bytea NOT NULL, work bytea NOT NULL, crc bigint NOT NULL
);

-- What comes and goes with messages is kept in segments of 65,536 seqs: message_0, message_1, and so on, each made like the table here when its first row
-- comes, and dropped when its last has gone. So nothing bloats, whatever snapshots are held. The tables here have the rows of segments of which
-- few were left. Bodies are not compressed: that would cost more time than it saves.
CREATE TABLE message_old (
    seq bigint PRIMARY KEY, destination bigint NOT NULL, priority bigint NOT NULL, expires bigint NOT NULL, size bigint NOT NULL,
    persistent bigint NOT NULL, crc bigint NOT NULL, head bytea NOT NULL, body bytea NOT NULL
);
ALTER TABLE message_old ALTER COLUMN head SET STORAGE EXTERNAL, ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX message_old_passing ON message_old (seq) WHERE persistent = 0;

CREATE TABLE owed_old (seq bigint NOT NULL, subscription bigint NOT NULL, PRIMARY KEY (seq, subscription));

CREATE TABLE redelivery_old (
    seq bigint NOT NULL, owner bigint NOT NULL, attempts bigint NOT NULL, not_before bigint NOT NULL, PRIMARY KEY (seq, owner)
);

CREATE TABLE duplicate_old (seq bigint PRIMARY KEY, destination bigint NOT NULL, at bigint NOT NULL, crc bigint NOT NULL, id bytea NOT NULL);

-- What an operator said last of bridges and their links, in JSON: what is paused or stopped.
CREATE TABLE bridge_orders (bridge bytea PRIMARY KEY, orders text NOT NULL);

-- Small files that the processes of the broker share: users and access rules. version: rises with each change. node: the process that made the last one.
CREATE TABLE shared_file (name text PRIMARY KEY, version bigint NOT NULL, octets bytea NOT NULL, node text NOT NULL);

-- The decision logs of bridges' coordinators, by the bridge's name. Each has two tables, decision_ID_0 and decision_ID_1, made like the one here, which is
-- empty. turn: not written any more; how often the log was written anew is the highest turn of its tables. Even turns are in the first, odd ones in the
-- second, which is emptied before.
CREATE TABLE decision_log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, bridge bytea NOT NULL UNIQUE, turn bigint NOT NULL);

-- at: where in the log the octets are, from 0.
CREATE TABLE decision (turn bigint NOT NULL, at bigint NOT NULL, octets bytea NOT NULL, PRIMARY KEY (turn, at));
