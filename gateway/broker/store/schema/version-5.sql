-- The store's tables, version 5. The version is the file's user_version; "ours" is its application_id.
-- No index but the keys: order, priorities, sizes and expiry are rebuilt from the scan at start.
-- Names are not unique: a destination or subscription may be removed and made anew under another id in one batch.

-- id: the store's, in every message id. next_seq: every seq below it may have been used.
-- clean: 0 while the store is in use. After a close in order the seal, a sum for each table (checks.py); 1 without one, as earlier programs wrote.
-- sweep: when not 0, messages below that seq that are not persistent, and contents without a message, are deleted in idle moments.
-- destinations, subscriptions: the sum of the crc of all rows of that table, so that a row that is lost is noticed.
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;

-- administered: 1 when an administrator gave the properties; 2 when it was removed, and its messages are being deleted; else they are the settings', and empty where the destination made itself.
-- crc: CRC-32 of id, kind, administered, and the lengths of name and properties in UTF-8, 64 bits each and little-endian, and of name and properties.
CREATE TABLE destination (
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL, properties TEXT NOT NULL,
    administered INTEGER NOT NULL DEFAULT 0, crc INTEGER NOT NULL DEFAULT 0
);

-- crc: CRC-32 of id, destination, no_local, and the lengths of client_id, name and selector in UTF-8, 64 bits each and little-endian, and of these
-- three.
CREATE TABLE subscription (
    id INTEGER PRIMARY KEY, destination INTEGER NOT NULL, client_id TEXT NOT NULL, name TEXT NOT NULL,
    selector TEXT NOT NULL, no_local INTEGER NOT NULL, crc INTEGER NOT NULL DEFAULT 0
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

-- Duplicate ids that are remembered. seq: that of the message that came with the id, so new rows go to the end, and the oldest are the first.
-- at: when it came, epoch milliseconds. id: UTF-8. crc: CRC-32 of seq, destination and at, 64 bits each and little-endian, and of id.
CREATE TABLE duplicate (
    seq INTEGER PRIMARY KEY, destination INTEGER NOT NULL, at INTEGER NOT NULL, crc INTEGER NOT NULL, id BLOB NOT NULL
);

-- Transaction branches that are prepared, or were completed heuristically and not forgotten yet. state: 0, or the X/Open code of what was done.
-- since: when it was prepared, epoch milliseconds. work: what it has sent and acknowledged, the broker's own encoding. crc: CRC-32 of id,
-- format, state, since, and the lengths of gtrid and bqual, 64 bits each and little-endian, and of gtrid, bqual, user in UTF-8, and work.
CREATE TABLE branch (
    id INTEGER PRIMARY KEY, format INTEGER NOT NULL, gtrid BLOB NOT NULL, bqual BLOB NOT NULL, state INTEGER NOT NULL,
    since INTEGER NOT NULL, user TEXT NOT NULL, work BLOB NOT NULL, crc INTEGER NOT NULL
);
