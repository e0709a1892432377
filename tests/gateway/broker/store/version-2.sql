-- The store's tables, version 2. The version is the file's user_version; "ours" is its application_id.
-- No index but the keys: order, priorities, sizes and expiry are rebuilt from the scan at start.
-- Names are not unique: a destination or subscription may be removed and made anew under another id in one batch.

-- id: the store's, in every message id. clean: 1 after a close in order. next_seq: every seq below it may have been used.
-- sweep: when not 0, rows of content below that seq may have no message; they are deleted in idle moments.
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;

-- administered: 1 when an administrator gave the properties; else they are the settings', and empty where the destination made itself.
CREATE TABLE destination (
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL, properties TEXT NOT NULL,
    administered INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE subscription (
    id INTEGER PRIMARY KEY, destination INTEGER NOT NULL, client_id TEXT NOT NULL, name TEXT NOT NULL,
    selector TEXT NOT NULL, no_local INTEGER NOT NULL
);

-- Narrow: this is what the scan at start reads. crc: CRC-32 of the six columns before it, 64 bits
-- each and little-endian, and of head and body.
CREATE TABLE message (
    seq INTEGER PRIMARY KEY, destination INTEGER NOT NULL, priority INTEGER NOT NULL, expires INTEGER NOT NULL,
    size INTEGER NOT NULL, persistent INTEGER NOT NULL, crc INTEGER NOT NULL
);

CREATE TABLE content (seq INTEGER PRIMARY KEY, head BLOB NOT NULL, body BLOB NOT NULL);

-- Keys begin with seq: new rows go to the end, a message's rows lie together, and a scan comes by rising seq.
CREATE TABLE owed (seq INTEGER NOT NULL, subscription INTEGER NOT NULL, PRIMARY KEY (seq, subscription)) WITHOUT ROWID;

CREATE TABLE redelivery (
    seq INTEGER NOT NULL, owner INTEGER NOT NULL, attempts INTEGER NOT NULL, not_before INTEGER NOT NULL,
    PRIMARY KEY (seq, owner)
) WITHOUT ROWID;
