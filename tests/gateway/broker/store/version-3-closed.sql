-- The rows of a store that the program of version 3 wrote and closed in order, with its seal in 'clean'.
INSERT INTO "branch" VALUES(9,1,X'676C6F62616C',X'6272616E6368',0,5,'guest',X'01000000000000000400000000000000',2250096787);
INSERT INTO "content" VALUES(1,X'68656164',X'626F64792031');
INSERT INTO "content" VALUES(2,X'68656164',X'626F64792032');
INSERT INTO "content" VALUES(3,X'68656164',X'626F64792033');
INSERT INTO "content" VALUES(4,X'68656164',X'626F64792034');
INSERT INTO "content" VALUES(5,X'68656164',X'626F64792035');
INSERT INTO "content" VALUES(6,X'68656164',X'626F64792036');
INSERT INTO "destination" VALUES(1,0,'orders','maxNumMsgs=5
',0);
INSERT INTO "destination" VALUES(2,1,'prices','',0);
INSERT INTO "destination" VALUES(3,0,'Grüße','maxNumMsgs=7
',1);
INSERT INTO "duplicate" VALUES(2,3,1700000000000,2358608295,X'69642032');
INSERT INTO "message" VALUES(1,2,4,0,10,1,3679617031);
INSERT INTO "message" VALUES(2,3,4,0,10,1,421779705);
INSERT INTO "message" VALUES(3,1,4,0,10,1,4159754847);
INSERT INTO "message" VALUES(4,2,4,0,10,1,294798102);
INSERT INTO "message" VALUES(5,3,4,0,10,1,2825086434);
INSERT INTO "message" VALUES(6,1,4,0,10,1,1026560334);
INSERT INTO "meta" VALUES('clean','sqlite_master=3e5fd6e4 meta=3c197f42 destination=463ab0de subscription=4403f740 message=6:54118219076 owed=3:3811704096 redelivery=1:2043750345 duplicate=1:4582298961 branch=1:7680006913');
INSERT INTO "meta" VALUES('id','0001020304050607');
INSERT INTO "meta" VALUES('next_seq',100);
INSERT INTO "meta" VALUES('sweep',0);
INSERT INTO "owed" VALUES(1,7);
INSERT INTO "owed" VALUES(1,8);
INSERT INTO "owed" VALUES(4,7);
INSERT INTO "redelivery" VALUES(3,0,2,0);
INSERT INTO "subscription" VALUES(7,2,'client','one','colour = ''grün''',1);
INSERT INTO "subscription" VALUES(8,2,'client','two','',0);
