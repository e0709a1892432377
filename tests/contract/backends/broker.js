// A small AMQP 1.0 broker on rhea, which is another implementation of the protocol than the one
// under test. It keeps queues and topics in memory, and messages as the octets that came.
//
// The folder with its node_modules is given as the first argument; it prints the port where it
// listens on 127.0.0.1.

"use strict";

const path = require("path");
const rhea = require(path.join(process.argv[2], "node_modules", "rhea"));

// What rhea does not hand out: the octets of a message, which it would encode anew with other types.
const decode = rhea.message.decode;
rhea.message.decode = (octets) => Object.assign(decode(octets), { octets });

let numbers = 0;

// A message, whose header is written anew for each delivery: it counts them (section 3.2.1).
class Message {
  constructor(bare, durable, priority) {
    this.bare = bare;
    this.durable = durable;
    this.priority = priority === undefined ? 4 : priority;
    this.failed = 0;
    this.number = numbers++;
  }

  octets() {
    const fields = [this.durable ? 0x41 : 0x42, 0x50, this.priority, 0x40, this.failed ? 0x42 : 0x41, 0x52, this.failed];
    return Buffer.concat([Buffer.from([0, 0x53, 0x70, 0xc0, fields.length + 1, 5, ...fields]), this.bare]);
  }
}

function headerSize(octets) {
  if (!(octets[0] === 0 && octets[1] === 0x53 && octets[2] === 0x70)) {
    return 0;
  }
  const list = octets[3];
  return list === 0x45 ? 4 : list === 0xc0 ? 5 + octets[4] : 8 + octets.readUInt32BE(4);
}

// A queue: what waits, and its consumers, who take turns.
class Queue {
  constructor() {
    this.waiting = [];
    this.consumers = [];
  }

  // Where it was, when it comes back: behind those of its priority that came before it.
  put(message) {
    const behind = (each) => each.priority < message.priority || (each.priority === message.priority && each.number > message.number);
    const at = this.waiting.findIndex(behind);
    this.waiting.splice(at < 0 ? this.waiting.length : at, 0, message);
    this.deliver();
  }

  deliver() {
    while (this.waiting.length) {
      const consumer = this.consumers.find((each) => free(each) > 0);
      if (!consumer) {
        return;
      }
      this.consumers.splice(this.consumers.indexOf(consumer), 1);
      this.consumers.push(consumer);
      const message = this.waiting.shift();
      consumer.used += 1;
      const delivery = consumer.send(message.octets(), undefined, 0);
      consumer.unsettled.set(delivery, message);
    }
  }

  open(consumer) {
    this.consumers.push(consumer);
  }

  close(consumer) {
    this.consumers.splice(this.consumers.indexOf(consumer), 1);
    for (const message of consumer.unsettled.values()) {
      this.put(message);
    }
    consumer.unsettled.clear();
  }
}

// A topic, or a pattern of topics: each consumer has a queue of its own.
class Topic {
  constructor(name) {
    const levels = name.split(".").map((each) => each.replace(/[^\w*>]/g, "\\$&"));
    const pattern = levels.join("\\.").replace(/\*/g, "[^.]+").replace(/(\\\.)?>$/, "($1.*)?");
    this.matches = (other) => new RegExp(`^${pattern}$`).test(other);
    this.name = name;
    this.queues = new Map();
  }

  put(message) {
    for (const topic of [...nodes.values()].filter((each) => each.matches && each.matches(this.name))) {
      for (const queue of topic.queues.values()) {
        queue.put(new Message(message.bare, message.durable, message.priority));
      }
    }
  }

  open(consumer) {
    const queue = new Queue();
    queue.open(consumer);
    this.queues.set(consumer, queue);
    consumer.queue = queue;
  }

  close(consumer) {
    this.queues.delete(consumer);
  }
}

// The credit of a consumer that no message has used. rhea counts a message when it writes it, which
// is later than it was sent (section 2.6.7: both counts together are the limit).
function free(consumer) {
  return consumer.delivery_count + consumer.credit - consumer.used;
}

const nodes = new Map();

function node(terminus) {
  const topic = [].concat(terminus.capabilities || []).some((each) => `${each}` === "topic");
  const name = `${topic} ${terminus.address}`;
  if (!nodes.has(name)) {
    nodes.set(name, topic ? new Topic(terminus.address) : new Queue());
  }
  return nodes.get(name);
}

const consumers = new Set();
const container = rhea.create_container({ id: "broker" });
container.sasl_server_mechanisms.enable_anonymous();
container.sasl_server_mechanisms.enable_plain((name, passcode) => name === "guest" && passcode === "guest");

container.on("receiver_open", ({ receiver }) => {
  receiver.set_target(receiver.target);
  receiver.set_source(receiver.source);
  receiver.node = node(receiver.target);
});
container.on("message", ({ receiver, message, delivery }) => {
  const { octets, durable, priority } = message;
  receiver.node.put(new Message(octets.subarray(headerSize(octets)), durable, priority));
  delivery.accept();
});

container.on("sender_open", ({ sender }) => {
  sender.set_source(sender.source);
  sender.set_target(sender.target);
  sender.unsettled = new Map();
  sender.used = 0;
  sender.node = node(sender.source);
  sender.node.open(sender);
  sender.queue = sender.queue || sender.node;
  consumers.add(sender);
});
container.on("sender_flow", ({ sender }) => sender.queue.deliver());
container.on("sender_draining", ({ sender }) => {
  // Behind what was sent above.
  setImmediate(() => {
    sender.used += free(sender);
    sender.set_drained(true);
    sender.connection._register();
  });
});

// The outcomes; rhea settles what the client has settled or told.
function over(outcome) {
  return ({ sender, delivery }) => {
    const message = sender.unsettled.get(delivery);
    if (message && sender.unsettled.delete(delivery)) {
      delivery.update(true, delivery.remote_state.described());
      outcome(message, delivery.remote_state, sender);
    }
  };
}
container.on("accepted", over(() => {}));
container.on("rejected", over(() => {}));
container.on("released", over((message, _, sender) => sender.queue.put(message)));
container.on("modified", over((message, { delivery_failed, undeliverable_here }, sender) => {
  message.failed += delivery_failed ? 1 : 0;
  if (!undeliverable_here) {
    sender.queue.put(message);
  }
}));

// Gives back what consumers had that are no more. rhea tells the end of a link before the outcomes
// that came ahead of it.
function gone(which, failed) {
  setImmediate(() => {
    for (const sender of [...consumers].filter(which)) {
      consumers.delete(sender);
      for (const message of sender.unsettled.values()) {
        message.failed += failed;
      }
      sender.node.close(sender);
    }
  });
}
container.on("sender_close", ({ sender }) => gone((each) => each === sender, 0));
container.on("session_close", ({ session }) => gone((each) => each.session === session, 0));
container.on("connection_close", ({ connection }) => gone((each) => each.connection === connection, 1));
container.on("disconnected", ({ connection }) => gone((each) => each.connection === connection, 1));

const listener = container.listen({
  host: "127.0.0.1",
  port: 0,
  properties: { product: "a broker on rhea", version: "1" },
  treat_modified_as_released: false,
  autosettle: false,
  autoaccept: false,
});
listener.on("listening", () => console.log(listener.address().port));
