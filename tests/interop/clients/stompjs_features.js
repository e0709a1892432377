// What stompjs offers, each a function that fails where the gateway does not bear it out. It runs in Node.js and in a page.
//
// A function gets `make`, which makes a client of some options that is closed at the end, and `queue`, the name of a queue of its own.

"use strict";

function check(condition, said) {
  if (!condition) {
    throw new Error(said);
  }
}

function equal(found, wanted) {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  check(one === other, `${one} is not ${other}`);
}

// A queue of what came, whose `next` waits.
function inbox() {
  const [came, waiting] = [[], []];
  return {
    put: (one) => (waiting.length ? waiting.shift()(one) : came.push(one)),
    next: () => (came.length ? Promise.resolve(came.shift()) : new Promise((take) => waiting.push(take))),
  };
}

// Connects a client; the result has its first CONNECTED.
function connected(client) {
  return new Promise((resolve, reject) => {
    client.onConnect = resolve;
    client.onStompError = (frame) => reject(new Error(frame.headers.message));
    client.activate();
  });
}

let receipts = 0;

// Waits until all that a client has sent is carried out.
function settled(client, send) {
  return new Promise((resolve) => {
    const receipt = `settled-${receipts++}`;
    client.watchForReceipt(receipt, resolve);
    send({ receipt });
  });
}

async function subscribed(client, destination, headers = {}) {
  const box = inbox();
  await settled(client, (receipt) => {
    box.subscription = client.subscribe(destination, box.put, { ...headers, ...receipt });
  });
  return box;
}

const features = {
  async each_version_of_STOMP({ StompJs, make }) {
    for (const version of ["1.0", "1.1", "1.2"]) {
      const client = make({ stompVersions: new StompJs.Versions([version]) });
      const frame = await connected(client);
      equal([frame.headers.version || "1.0", client.connectedVersion || "1.0"], [version, version]);
    }
  },

  async heart_beats_both_ways({ make }) {
    const heard = inbox();
    const client = make({ heartbeatIncoming: 300, heartbeatOutgoing: 300, onHeartbeatReceived: () => heard.put(1) });
    client.onHeartbeatLost = () => heard.put(0);
    await connected(client);
    // Longer than the gateway waits for a client's.
    for (let count = 0; count < 5; count++) {
      equal(await heard.next(), 1);
    }
    check(client.connected, "the connection is lost");
  },

  async receipts_of_subscriptions_and_messages({ make, queue }) {
    const client = make();
    await connected(client);
    const box = await subscribed(client, queue);
    await settled(client, (headers) => client.publish({ destination: queue, body: "a", headers }));
    equal((await box.next()).body, "a");
  },

  async a_receipt_that_nobody_waits_for({ make, queue }) {
    const unhandled = inbox();
    const client = make({ onUnhandledReceipt: unhandled.put });
    await connected(client);
    client.publish({ destination: queue, body: "a", headers: { receipt: "alone" } });
    equal((await unhandled.next()).headers["receipt-id"], "alone");
  },

  async acknowledgement_of_single_messages({ make, queue }) {
    const client = make();
    await connected(client);
    ["a", "b", "c"].forEach((body) => client.publish({ destination: queue, body }));
    const box = await subscribed(client, queue, { ack: "client-individual" });
    const [, b] = [await box.next(), await box.next(), await box.next()];
    await settled(client, (headers) => b.ack(headers));
    await client.deactivate();
    const second = make();
    await connected(second);
    const rest = await subscribed(second, queue, { ack: "client" });
    const found = [await rest.next(), await rest.next()];
    equal(found.map((message) => message.body), ["a", "c"]);
    await settled(second, (headers) => found[1].ack(headers));
  },

  async a_message_that_is_refused_comes_again({ make, queue }) {
    const client = make();
    await connected(client);
    const box = await subscribed(client, queue, { ack: "client-individual" });
    client.publish({ destination: queue, body: "a" });
    (await box.next()).nack();
    const again = await box.next();
    equal([again.body, again.headers.redelivered], ["a", "true"]);
    again.ack();
  },

  async transactions({ make, queue }) {
    const client = make();
    await connected(client);
    const box = await subscribed(client, queue);
    const undone = client.begin();
    client.publish({ destination: queue, body: "undone", headers: { transaction: undone.id } });
    undone.abort();
    const done = client.begin("mine");
    equal(done.id, "mine");
    client.publish({ destination: queue, body: "done", headers: { transaction: done.id } });
    done.commit();
    equal((await box.next()).body, "done");
  },

  async a_selector_and_an_id_of_its_own({ make, queue }) {
    const client = make();
    await connected(client);
    const box = await subscribed(client, queue, { selector: "colour = 'red'", id: "my own" });
    equal(box.subscription.id, "my own");
    for (const colour of ["blue", "red"]) {
      client.publish({ destination: queue, body: colour, headers: { colour } });
    }
    const message = await box.next();
    equal([message.body, message.headers.colour, message.headers.subscription], ["red", "red", "my own"]);
  },

  async the_end_of_a_subscription({ make, queue }) {
    const unhandled = inbox();
    const client = make({ onUnhandledMessage: unhandled.put });
    await connected(client);
    const box = await subscribed(client, queue);
    await settled(client, (headers) => box.subscription.unsubscribe(headers));
    client.publish({ destination: queue, body: "kept" });
    const again = await subscribed(client, queue);
    equal((await again.next()).body, "kept");
  },

  async a_temporary_queue_to_answer_to({ make, queue }) {
    const [asking, answering] = [make(), make()];
    await Promise.all([connected(asking), connected(answering)]);
    const answers = await subscribed(asking, "/temp-queue/answers");
    const asked = await subscribed(answering, queue);
    asking.publish({ destination: queue, body: "1 + 1", headers: { "reply-to": "/temp-queue/answers" } });
    answering.publish({ destination: (await asked.next()).headers["reply-to"], body: "2" });
    equal((await answers.next()).body, "2");
  },

  async a_durable_subscription({ make, queue }) {
    const topic = queue.replace("/queue/", "/topic/");
    const options = { connectHeaders: { "client-id": queue.replace(/\W/g, "-") } };
    const durable = { id: "d", "durable-subscriber-name": "d" };
    const first = make(options);
    await connected(first);
    await subscribed(first, topic, durable);
    await first.deactivate();
    const other = make();
    await connected(other);
    await settled(other, (headers) => other.publish({ destination: topic, body: "meanwhile", headers }));
    const back = make(options);
    await connected(back);
    const box = await subscribed(back, topic, durable);
    equal((await box.next()).body, "meanwhile");
    await settled(back, (headers) => box.subscription.unsubscribe({ ...durable, ...headers }));
  },

  async binary_bodies({ make, queue }) {
    const client = make();
    await connected(client);
    const box = await subscribed(client, queue);
    const binaryBody = Uint8Array.from({ length: 70000 }, (_, at) => (at * 7) % 256);
    client.publish({ destination: queue, binaryBody, headers: { "content-type": "application/octet-stream" } });
    const message = await box.next();
    check(message.isBinaryBody, "it is no binary body");
    equal(Array.from(message.binaryBody), Array.from(binaryBody));
  },

  async texts_of_all_languages_and_headers_with_any_character({ make, queue }) {
    const client = make();
    await connected(client);
    const box = await subscribed(client, queue);
    // Not a backslash before c, n or r: stompjs itself reads that otherwise than it was written.
    const header = "a:b\\x\nd\re ✓";
    client.publish({ destination: queue, body: "grüß dich, 世界 😀", headers: { my_header: header } });
    const message = await box.next();
    equal([message.body, message.headers.my_header], ["grüß dich, 世界 😀", header]);
  },

  async a_body_without_content_length({ make, queue }) {
    const client = make();
    await connected(client);
    const box = await subscribed(client, queue);
    client.publish({ destination: queue, body: "short", skipContentLengthHeader: true });
    equal((await box.next()).body, "short");
  },

  async frames_in_chunks_and_in_binary_messages({ make, queue }) {
    const body = "0123456789".repeat(50000);
    for (const options of [{ splitLargeFrames: true, maxWebSocketChunkSize: 1000 }, { forceBinaryWSFrames: true }]) {
      const client = make({ ...options, appendMissingNULLonIncoming: true });
      await connected(client);
      const box = await subscribed(client, queue, { ack: "client" });
      client.publish({ destination: queue, body });
      const message = await box.next();
      equal(message.body, body);
      await settled(client, (headers) => message.ack(headers));
      await client.deactivate();
    }
  },

  async a_passcode_that_is_wrong({ make }) {
    const [errors, closes] = [inbox(), inbox()];
    const client = make({ connectHeaders: { passcode: "wrong" }, reconnectDelay: 0 });
    client.onStompError = errors.put;
    client.onWebSocketClose = closes.put;
    client.activate();
    check((await errors.next()).headers.message, "the ERROR has no message");
    const { code, reason } = await closes.next();
    check(code === 1008 && reason, `closed with ${code} ${reason}`);
  },

  async what_is_done_before_each_connection({ make }) {
    const client = make({ connectHeaders: { passcode: "wrong" } });
    client.beforeConnect = async (given) => {
      given.connectHeaders = { login: "guest", passcode: await Promise.resolve("guest") };
    };
    equal((await connected(client)).command, "CONNECTED");
  },

  async a_connection_that_is_lost_is_made_again({ StompJs, make, queue }) {
    const connects = inbox();
    const options = { reconnectDelay: 10, reconnectTimeMode: StompJs.ReconnectionTimeMode.EXPONENTIAL, connectionTimeout: 20000 };
    const client = make({ ...options, maxReconnectDelay: 100, discardWebsocketOnCommFailure: true });
    client.onConnect = connects.put;
    client.activate();
    for (let round = 0; round < 3; round++) {
      await connects.next();
      const box = await subscribed(client, queue);
      client.publish({ destination: queue, body: `round ${round}` });
      equal((await box.next()).body, `round ${round}`);
      client.forceDisconnect();
    }
    await connects.next();
  },

  async goodbye_in_order_and_at_once({ make }) {
    for (const force of [false, true]) {
      const [left, closes] = [inbox(), inbox()];
      const client = make({ disconnectHeaders: { receipt: "goodbye" }, onDisconnect: left.put, onWebSocketClose: closes.put });
      await connected(client);
      await client.deactivate({ force });
      if (!force) {
        equal((await left.next()).headers["receipt-id"], "goodbye");
      }
      await closes.next();
      check(!client.active && !client.connected, "it is still there");
    }
  },
};

// Runs one; `base` are the options of all clients.
async function run(name, StompJs, base) {
  const clients = [];
  const make = (options = {}) => {
    const connectHeaders = { ...base.connectHeaders, ...options.connectHeaders };
    const client = new StompJs.Client({ reconnectDelay: 0, ...base, ...options, connectHeaders });
    clients.push(client);
    return client;
  };
  try {
    await features[name]({ StompJs, make, queue: `/queue/${name}/${Math.random()}` });
  } finally {
    await Promise.all(clients.map((client) => client.deactivate()));
  }
}

if (typeof module !== "undefined") {
  const path = require("path");
  const [, , packages, name, url] = process.argv;
  const modules = path.join(packages, "node_modules");
  const StompJs = require(path.join(modules, "@stomp", "stompjs"));
  const WebSocket = require(path.join(modules, "ws"));
  const webSocketFactory = () => new WebSocket(url, ["v12.stomp", "v11.stomp", "v10.stomp"]);
  const base = { webSocketFactory, connectHeaders: { login: "guest", passcode: "guest" } };
  const done = name ? run(name, StompJs, base) : Promise.resolve(console.log(Object.keys(features).join("\n")));
  done.catch((error) => {
    console.error(error);
    process.exitCode = 1;
  });
}
