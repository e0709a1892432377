// STOMP 1.2 over a WebSocket: frames are written as texts, and read from octets however they are cut.
const Frames = (() => {
  "use strict";
  const LETTERS = { "\\": "\\", r: "\r", n: "\n", c: ":" };
  const CODES = Object.fromEntries(Object.entries(LETTERS).map(([letter, one]) => [one, "\\" + letter]));
  const UTF8 = new TextDecoder();
  const LINE = 10, RETURN = 13;

  const escaped = (text) => text.replace(/[\\\r\n:]/g, (one) => CODES[one]);
  const unescaped = (text) => text.replace(/\\([^]?)/g, (whole, letter) => {
    if (!(letter in LETTERS)) throw new Error(`a header has the undefined escape ${whole}`);
    return LETTERS[letter];
  });

  // Without content-length: with it, a server takes the body for bytes and not for a text.
  function written(command, headers, body = "") {
    // CONNECT knows no escapes, and neither does CONNECTED.
    const coded = command === "CONNECT" ? (text) => text : escaped;
    return [command, ...headers.map(([name, value]) => `${coded(name)}:${coded(value)}`), "", `${body}\0`].join("\n");
  }

  // Where the headers end and the body begins; 0 if that has not come.
  function bodyOf(octets, from) {
    for (let at = octets.indexOf(LINE, from); at >= 0; at = octets.indexOf(LINE, at + 1)) {
      const next = octets[at + 1] === RETURN ? at + 2 : at + 1;
      if (octets[next] === LINE) return next + 1;
    }
    return 0;
  }

  function headOf(octets) {
    const [command, ...lines] = UTF8.decode(octets).split("\n").map((line) => line.replace(/\r$/, ""));
    const coded = command === "CONNECTED" ? (text) => text : unescaped;
    const headers = lines.filter((line) => line).map((line) => {
      const colon = line.indexOf(":");
      if (colon < 0) throw new Error(`a header of ${command} has no colon`);
      return [coded(line.slice(0, colon)), coded(line.slice(colon + 1))];
    });
    return { command, headers };
  }

  // Of repeated headers the first counts.
  const valueOf = (frame, name) => (frame.headers.find(([one]) => one === name) || [])[1];

  class Reader {
    constructor() {
      this.octets = new Uint8Array(4096);
      this.size = 0;
      this.needed = 1; // octets of the frame that is not whole, as far as is known
    }

    // Take what has come, and return the frames that are whole now: command, headers, and the body's octets.
    read(came) {
      if (this.size + came.length > this.octets.length) {
        const larger = new Uint8Array(2 * (this.size + came.length));
        larger.set(this.octets.subarray(0, this.size));
        this.octets = larger;
      }
      this.octets.set(came, this.size);
      this.size += came.length;
      const octets = this.octets.subarray(0, this.size);
      const frames = [];
      let from = 0;
      for (;;) {
        while (octets[from] === LINE || octets[from] === RETURN) from++;
        if (this.size - from < this.needed) break;
        const body = bodyOf(octets, from);
        if (!body) break;
        const frame = headOf(octets.subarray(from, body));
        const length = valueOf(frame, "content-length");
        const end = length === undefined ? octets.indexOf(0, body) : body + Number(length);
        if (end < 0) break;
        if (end >= this.size) {
          this.needed = end + 1 - from;
          break;
        }
        if (octets[end] !== 0) throw new Error(`a body of ${frame.command} is longer than its content-length`);
        frames.push({ ...frame, octets: octets.slice(body, end) });
        from = end + 1;
        this.needed = 1;
      }
      this.octets.copyWithin(0, from, this.size);
      this.size -= from;
      return frames;
    }
  }

  return { written, valueOf, Reader };
})();
