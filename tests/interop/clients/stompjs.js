// Drives stompjs over WebSocket. The folder with its node_modules is given as the first argument.

"use strict";

const path = require("path");
const readline = require("readline");
const fs = require("fs");
const modules = path.join(process.argv[2], "node_modules");
const { Client, Versions } = require(path.join(modules, "@stomp", "stompjs"));
const WebSocket = require(path.join(modules, "ws"));

const connections = {};
const received = [];
let receipts = 0;

// Ends with the receipt of the frame that `act` sends, or with the connection's error.
function receipt(held, act) {
  return new Promise((resolve, reject) => {
    const id = `receipt-${receipts++}`;
    held.failed = reject;
    held.client.watchForReceipt(id, () => {
      held.failed = () => {};
      resolve(null);
    });
    act(id);
  });
}

// What the client sends without a receipt is carried out before what follows, whose receipt tells.
function inOrder(held, act) {
  act(held.client);
  return null;
}

const verbs = {
  connect: (request) =>
    new Promise((resolve, reject) => {
      const headers = { login: request.login, passcode: request.passcode };
      if (request.client_id !== null) {
        headers["client-id"] = request.client_id;
      }
      const versions = new Versions([request.version]);
      const options = {};
      if (request.tls !== null) {
        options.ca = fs.readFileSync(request.tls.ca);
        options.cert = fs.readFileSync(request.tls.certificate);
        options.key = fs.readFileSync(request.tls.key);
      }
      const url = `${request.tls === null ? "ws" : "wss"}://${request.host}:${request.port}/stomp`;
      const held = { messages: [], arrived: () => {}, failed: reject };
      held.client = new Client({
        webSocketFactory: () => new WebSocket(url, versions.protocolVersions(), options),
        stompVersions: versions,
        connectHeaders: headers,
        reconnectDelay: 0,
        onConnect: (frame) => {
          held.failed = () => {};
          connections[request.connection] = held;
          resolve({ version: frame.headers.version || "1.0" });
        },
        onStompError: (frame) => held.failed(new Error(frame.headers.message)),
        onWebSocketError: (error) => held.failed(new Error(error.message)),
        onWebSocketClose: (event) => held.failed(new Error(`closed with ${event.code}: ${event.reason}`)),
      });
      held.client.activate();
    }),
  subscribe: (request) => {
    const held = connections[request.connection];
    const keep = (message) => {
      held.messages.push(message);
      held.arrived();
    };
    return receipt(held, (id) => {
      const headers = { ...request.headers, id: request.id, ack: request.ack, receipt: id };
      held.client.subscribe(request.destination, keep, headers);
    });
  },
  unsubscribe: (request) => {
    const held = connections[request.connection];
    return receipt(held, (id) => {
      const headers = { ...request.headers, destination: request.destination, receipt: id };
      held.client.unsubscribe(request.id, headers);
    });
  },
  send: (request) => {
    const held = connections[request.connection];
    return receipt(held, (id) => {
      const headers = { ...request.headers, receipt: id };
      if (request.transaction !== null) {
        headers.transaction = request.transaction;
      }
      const binaryBody = new Uint8Array(Buffer.from(request.body, "hex"));
      held.client.publish({ destination: request.destination, headers, binaryBody });
    });
  },
  receive: (request) =>
    new Promise((resolve) => {
      const held = connections[request.connection];
      const take = () => {
        const message = held.messages.shift();
        if (message === undefined) {
          return false;
        }
        received.push(message);
        const body = Buffer.from(message.binaryBody).toString("hex");
        resolve({ number: received.length - 1, headers: message.headers, body });
        return true;
      };
      if (take()) {
        return;
      }
      const timer = setTimeout(() => {
        held.arrived = () => {};
        resolve(null);
      }, request.seconds * 1000);
      held.arrived = () => {
        held.arrived = () => {};
        clearTimeout(timer);
        take();
      };
    }),
  ack: (request) => {
    const held = connections[request.connection];
    const headers = request.transaction === null ? {} : { transaction: request.transaction };
    return receipt(held, (id) => received[request.number].ack({ ...headers, receipt: id }));
  },
  begin: (request) => inOrder(connections[request.connection], (client) => client.begin(request.transaction)),
  commit: (request) => inOrder(connections[request.connection], (client) => client.commit(request.transaction)),
  abort: (request) => inOrder(connections[request.connection], (client) => client.abort(request.transaction)),
  disconnect: (request) => {
    const held = connections[request.connection];
    delete connections[request.connection];
    return held.client.deactivate().then(() => null);
  },
};

let turn = Promise.resolve();
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  turn = turn
    .then(() => verbs[request.verb](request))
    .then(
      (ok) => ({ ok }),
      (error) => ({ error: `${error.name}: ${error.message}` }),
    )
    .then((answer) => process.stdout.write(JSON.stringify(answer) + "\n"));
}).on("close", () => turn.then(() => process.exit(0)));
