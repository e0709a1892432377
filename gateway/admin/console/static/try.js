// The STOMP client of the page "Try it". What others have sent becomes texts of the page, and never HTML.
(() => {
  "use strict";
  const MOST = 200; // frames that are shown
  const LONGEST = 10000; // characters of a body that are shown
  const OWN = ["destination", "receipt", "content-length"]; // headers that the page sets
  const at = (id) => document.getElementById(id);
  if (!at("connect")) return;

  let socket = null;
  let user = "";
  let opened = false; // the listener took the WebSocket
  let told = ""; // by an ERROR
  let leaving = false;
  let number = 0; // of subscriptions and receipts
  let came = 0;
  let paused = false;
  let waiting = []; // frames to be shown, the newest last
  let drawing = 0;
  const subscriptions = new Map();
  const unsettled = new Map(); // ids for ACK, and the subscriptions of their messages

  function made(name, text = "", kind = "") {
    const one = document.createElement(name);
    one.textContent = text;
    if (kind) one.className = kind;
    return one;
  }

  function button(text, about, pressed) {
    const one = made("button", text);
    one.type = "button";
    one.setAttribute("aria-label", `${text} ${about}`);
    one.addEventListener("click", pressed);
    return one;
  }

  function say(text, kind = "") {
    at("state").textContent = text;
    at("state").className = kind;
  }

  const escapedCharacter = (one) => `\\u{${one.codePointAt(0).toString(16)}}`;
  const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, escapedCharacter);
  const visibleLines = (text) => text.replace(/(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, escapedCharacter);

  // --- connection

  function connect(url, passcode) {
    const reader = new Frames.Reader();
    try {
      socket = new WebSocket(url, ["v12.stomp"]);
    } catch {
      say(`The browser opens no connection to ${url} from a page that came over TLS: choose a listener that has ${setting("tls")}=true.`, "refused");
      return;
    }
    [opened, told, leaving, came, waiting] = [false, "", false, 0, []];
    at("frames").replaceChildren();
    say("Connecting…");
    connected(false);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      opened = true;
      const host = new URL(url).hostname;
      send("CONNECT", [["accept-version", "1.2"], ["host", host], ["heart-beat", "0,0"], ["login", user], ["passcode", passcode]]);
      passcode = "";
    };
    socket.onmessage = (event) => {
      const octets = typeof event.data === "string" ? new TextEncoder().encode(event.data) : new Uint8Array(event.data);
      try {
        reader.read(octets).forEach(take);
      } catch (error) {
        told = error.message;
        socket.close();
      }
    };
    socket.onclose = ended;
  }

  function setting(name) {
    return `${at("listener").selectedOptions[0].dataset.settings}.${name}`;
  }

  function ended(event) {
    socket = null;
    const active = document.activeElement;
    const lost = active === document.body || active === at("disconnect") || at("session").contains(active);
    for (const id of subscriptions.keys()) forget(id);
    connected(false);
    if (!opened) say(refusal(), "refused");
    else if (leaving) say("Disconnected.");
    else say(`The connection has ended (${event.code}). ${told || event.reason}`, "refused");
    // What had the focus is hidden or disabled now.
    if (lost) at("user").focus();
    draw();
  }

  // The browser does not tell a page why it got no WebSocket.
  function refusal() {
    const chosen = at("listener").selectedOptions[0];
    const there = new URL(chosen.value);
    const why = ["the listener is not reached"];
    if (there.hostname !== location.hostname && !("admits" in chosen.dataset)) why.push(`it refuses pages of ${location.origin}, unless ${setting("origins")} names that`);
    if (there.protocol === "wss:") why.push("the browser does not trust its certificate");
    return `No connection to ${chosen.value}: ${why.join(", or ")}. The log of the gateway tells of those that it refuses.`;
  }

  function send(command, headers, body) {
    socket.send(Frames.written(command, headers, body));
  }

  function connected(is) {
    at("session").hidden = !is;
    for (const one of at("connect").elements) one.disabled = Boolean(socket);
    at("disconnect").disabled = !socket;
  }

  at("connect").addEventListener("submit", (event) => {
    event.preventDefault();
    const passcode = at("passcode").value;
    at("passcode").value = "";
    user = at("user").value;
    if (!socket) connect(at("listener").value, passcode);
  });

  at("disconnect").addEventListener("click", () => {
    if (leaving || at("session").hidden) return socket.close();
    leaving = true;
    send("DISCONNECT", [["receipt", `r-${++number}`]]);
  });

  window.addEventListener("pagehide", () => socket && socket.close());

  // --- what comes

  function take(frame) {
    came++;
    const subscription = Frames.valueOf(frame, "subscription");
    const ack = Frames.valueOf(frame, "ack");
    if (frame.command === "CONNECTED") {
      connected(true);
      say(`Connected as ${visible(user)}.`, "good");
      at("subscribe-to").focus();
    } else if (frame.command === "RECEIPT") {
      say(`${Frames.valueOf(frame, "receipt-id")} is confirmed.`, "good");
      if (leaving) socket.close(1000);
    } else if (frame.command === "ERROR") {
      told = visible(Frames.valueOf(frame, "message") || "The server sent an ERROR.");
    } else if (ack && subscriptions.has(subscription)) {
      unsettled.set(ack, subscription);
    }
    waiting.push({ frame, time: new Date(), subscription, ack });
    if (waiting.length > MOST) waiting.shift();
    draw();
  }

  // Not more often than the screen does.
  function draw() {
    if (!drawing) drawing = requestAnimationFrame(drawn);
  }

  function drawn() {
    drawing = 0;
    const list = at("frames");
    if (!paused) {
      list.prepend(...waiting.reverse().map(shown));
      waiting = [];
      while (list.childElementCount > MOST) list.lastElementChild.remove();
    }
    const parts = [came === 1 ? "1 frame came" : `${came} frames came`];
    if (came > MOST) parts.push(`the latest ${MOST} are kept`);
    if (paused) parts.push(`paused, ${waiting.length} not shown yet`);
    if (unsettled.size) parts.push(`${unsettled.size} not acknowledged`);
    at("count").textContent = parts.join("; ");
  }

  function shown({ frame, time, subscription, ack }) {
    const item = made("li", "", { ERROR: "bad", MESSAGE: "odd" }[frame.command] || "");
    item.tabIndex = -1;
    const head = made("p", "", "way");
    head.append(made("strong", frame.command), made("time", time.toISOString().slice(11, 23) + " UTC"));
    item.append(head, made("pre", frame.headers.map(([name, value]) => `${visible(name)}: ${visible(value)}`).join("\n"), "head"));
    if (frame.octets.length) item.append(...bodyOf(frame.octets));
    if (unsettled.has(ack)) {
      const settling = made("p", "", "buttons");
      settling.dataset.subscription = subscription;
      for (const command of ["ACK", "NACK"]) {
        settling.append(button(command, visible(Frames.valueOf(frame, "message-id") || ack), () => settle(command, ack, settling)));
      }
      item.append(settling);
    }
    return item;
  }

  function bodyOf(octets) {
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(octets);
    } catch {
      const some = [...octets.subarray(0, 256)].map((one) => one.toString(16).padStart(2, "0"));
      return [made("p", `${octets.length} bytes, which are no UTF-8; the first ${some.length}:`, "facts"), made("pre", some.join(" "), "body")];
    }
    const parts = [made("pre", visibleLines(text.slice(0, LONGEST)), "body")];
    if (text.length > LONGEST) parts.unshift(made("p", `${octets.length} bytes; the first ${LONGEST} characters:`, "facts"));
    return parts;
  }

  function settle(command, ack, settling) {
    send(command, [["id", ack]]);
    unsettled.delete(ack);
    const item = settling.closest("li");
    settling.replaceWith(made("p", command === "ACK" ? "Acknowledged" : "Refused by NACK", "facts"));
    item.focus();
    draw();
  }

  at("pause").addEventListener("click", () => {
    paused = !paused;
    at("pause").setAttribute("aria-pressed", String(paused));
    draw();
  });

  // --- what is sent

  at("subscribe").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = `s-${++number}`;
    const destination = at("subscribe-to").value;
    const ack = at("ack").value;
    send("SUBSCRIBE", [["id", id], ["destination", destination], ["ack", ack]]);
    const line = made("li", `${id}: ${visible(destination)}, ${ack} `);
    line.append(button("Unsubscribe", `${id} from ${visible(destination)}`, () => {
      send("UNSUBSCRIBE", [["id", id]]);
      forget(id);
      at("subscribe-to").focus();
      say(`${id} is unsubscribed.`);
    }));
    subscriptions.set(id, line);
    at("subscriptions").append(line);
    say(`${id} is subscribed to ${visible(destination)}.`);
  });

  // Its messages that have not been acknowledged go to others, or come again.
  function forget(id) {
    for (const [ack, subscription] of unsettled) if (subscription === id) unsettled.delete(ack);
    for (const settling of at("frames").querySelectorAll(".buttons")) {
      if (settling.dataset.subscription === id) settling.remove();
    }
    subscriptions.get(id).remove();
    subscriptions.delete(id);
    draw();
  }

  function headersOf(text) {
    return text.split("\n").filter((line) => line.trim()).map((line) => {
      const colon = line.indexOf(":");
      const name = line.slice(0, colon).trim();
      if (colon < 0 || !name) throw new Error(`"${line}" is no header; expected NAME: VALUE`);
      if (OWN.includes(name)) throw new Error(`the header ${name} is set by the page`);
      return [name, line.slice(colon + 1).trim()];
    });
  }

  at("send").addEventListener("submit", (event) => {
    event.preventDefault();
    const destination = at("send-to").value;
    const headers = [["destination", destination]];
    const receipt = at("receipt").checked ? `r-${++number}` : "";
    if (receipt) headers.push(["receipt", receipt]);
    try {
      headers.push(...headersOf(at("headers").value));
    } catch (error) {
      say(`Not sent: ${error.message}.`, "refused");
      at("headers").focus();
      return;
    }
    say(receipt ? `Sent to ${visible(destination)}; ${receipt} is to come.` : `Sent to ${visible(destination)}.`);
    send("SEND", headers, at("body").value);
  });
})();
