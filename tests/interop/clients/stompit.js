// Drives stompit. The folder with its node_modules is given as the first argument.

"use strict";

const path = require("path");
const readline = require("readline");
const fs = require("fs");
const stompit = require(path.join(process.argv[2], "node_modules", "stompit"));

const SECONDS = 60;

// An ERROR frame ends stompit's connection, which tells the callback, and then the half-read frame, to which nobody can listen.
process.on("uncaughtException", (error) => {
  if (typeof error.isApplicationError !== "function") {
    throw error;
  }
});
const connections = {};
const received = [];

// Ends with the receipt of the frame that `act` sends, or with the connection's error.
function receipt(held, act) {
  return new Promise((resolve, reject) => {
    const onError = (error) => reject(error);
    held.client.once("error", onError);
    act({
      onReceipt: () => {
        held.client.removeListener("error", onError);
        resolve(null);
      },
    });
  });
}

// Hands messages, in order, to whoever waits for them. A frame is a stream that must be read before the next one comes.
function keep(held) {
  return (error, frame) => {
    if (error) {
      return;
    }
    const chunks = [];
    frame.on("data", (chunk) => chunks.push(chunk));
    frame.on("end", () => {
      held.messages.push({ frame, body: Buffer.concat(chunks) });
      held.arrived();
    });
  };
}

const verbs = {
  connect: (request) =>
    new Promise((resolve, reject) => {
      const headers = { login: request.login, passcode: request.passcode, "accept-version": request.version };
      if (request.client_id !== null) {
        headers["client-id"] = request.client_id;
      }
      const options = { host: request.host, port: request.port, timeout: SECONDS * 1000, connectHeaders: headers };
      if (request.tls !== null) {
        options.ssl = true;
        options.ca = fs.readFileSync(request.tls.ca);
        options.cert = fs.readFileSync(request.tls.certificate);
        options.key = fs.readFileSync(request.tls.key);
      }
      stompit.connect(options, (error, client) => {
        if (error) {
          reject(error);
          return;
        }
        const held = { client, messages: [], arrived: () => {} };
        client.on("error", () => {});
        connections[request.connection] = held;
        resolve({ version: client.headers.version || "1.0" });
      });
    }),
  subscribe: (request) => {
    const held = connections[request.connection];
    const headers = { ...request.headers, destination: request.destination, id: request.id, ack: request.ack };
    // The client's own subscribe asks for no receipt.
    held.client.setImplicitSubscription(request.id, request.ack, keep(held));
    return receipt(held, (options) => held.client.sendFrame("SUBSCRIBE", headers, options).end());
  },
  unsubscribe: (request) => {
    const held = connections[request.connection];
    const headers = { ...request.headers, destination: request.destination, id: request.id };
    return receipt(held, (options) => held.client.sendFrame("UNSUBSCRIBE", headers, options).end());
  },
  send: (request) => {
    const held = connections[request.connection];
    const body = Buffer.from(request.body, "hex");
    const headers = { ...request.headers, destination: request.destination, "content-length": body.length };
    if (request.transaction !== null) {
      headers.transaction = request.transaction;
    }
    return receipt(held, (options) => held.client.send(headers, options).end(body));
  },
  receive: (request) =>
    new Promise((resolve) => {
      const held = connections[request.connection];
      const take = () => {
        const message = held.messages.shift();
        if (message === undefined) {
          return false;
        }
        received.push(message.frame);
        resolve({ number: received.length - 1, headers: message.frame.headers, body: message.body.toString("hex") });
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
    return receipt(held, (options) => held.client.ack(received[request.number], headers, options));
  },
  begin: (request) => {
    const held = connections[request.connection];
    return receipt(held, (options) => held.client.sendFrame("BEGIN", { transaction: request.transaction }, options).end());
  },
  commit: (request) => {
    const held = connections[request.connection];
    return receipt(held, (options) => held.client.sendFrame("COMMIT", { transaction: request.transaction }, options).end());
  },
  abort: (request) => {
    const held = connections[request.connection];
    return receipt(held, (options) => held.client.sendFrame("ABORT", { transaction: request.transaction }, options).end());
  },
  disconnect: (request) =>
    new Promise((resolve, reject) => {
      const held = connections[request.connection];
      delete connections[request.connection];
      held.client.disconnect((error) => (error ? reject(error) : resolve(null)));
    }),
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
