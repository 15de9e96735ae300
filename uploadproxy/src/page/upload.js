// Uploads a file through the proxy that serves this page: with tus 1.0.0 where the upload server offers it
// (https://tus.io/protocols/resumable-upload), else in one request.
// XMLHttpRequest, because fetch does not tell how much is sent.

import { AHEAD_BYTES, CHECKSUM, FIRST_BYTES, GzipParts, PlainParts, crc64, gzipSpeed } from "./parts.js";

const WHOLE = "v1beta1/upload";
const RESUMABLE = "v1beta1/upload-resumable";
const TUS = { "Tus-Resumable": "1.0.0" };
const VERBATIM = { "X-Cdi-Workers-Format": "verbatim" };

// How often in a row a resumable upload may fail to move on. The pauses between add up to four minutes; the upload
// server keeps what it has for longer.
const ATTEMPTS = 12;
const LONGEST_PAUSE_S = 30;
// A connection over which nothing has moved for so long is taken for dead.
const STALL_MS = 60_000;
// Where this tab keeps an upload that a reload or a crash interrupts. It is of no use without a token.
const INTERRUPTED = "interrupted-upload";

// Answers to the beginning of a resumable upload where only uploads in one request exist: CDI's upload server, and archives.
const WHOLE_ONLY = [404, 405, 501];

// What passes by itself: a broken connection (0), an answer to fewer bytes than were sent (204), a proxy or server
// that starts anew.
const PASSING = [0, 204, 409, 423, 429, 502, 503, 504];

// Used where the server has sent no sentence.
const MEANING = {
  401: "The token is not valid, or has expired. Ask for a new one.",
  404: "There is no upload here any more.",
  409: "The volume has been uploaded to already.",
  410: "The upload server has given up this upload. Begin again.",
  415: "This file is not a disk image.",
  413: "Something on the way does not let an image of this size through.",
  429: "Too many uploads are going on. Try again later.",
  500: "The upload broke off, or the disk could not be written.",
  502: "The upload server cannot be reached. Try again later.",
  503: "The volume takes no upload now. Try again later.",
};

// What CDI's servers write before the reason.
const PREFIXES =
  /^((Saving stream failed|effective image size is larger than the reported available storage|Unable to [a-z ]+): )+/;
const UNREACHABLE = "error in upload-proxy: http: proxy error:";
// The page has a choice for this.
const HEADER_ADVICE = /; to store the bytes as they are, add the header X-CDI-Workers-Format: verbatim/;

const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&#34;": '"', "&#39;": "'" };

// The page of the running upload: `token()`, `signal` of the button Cancel, `meter`, `say`, `askForToken`, and `isVerbatim` for a file
// that is stored as it is.
let page;

/** An upload that has failed, in the server's words. */
class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }

  static of(xhr) {
    if (xhr.status === 0) {
      return new Failure("The connection broke, and the upload could not be continued.", 0);
    }
    const isText = !(xhr.getResponseHeader("Content-Type") ?? "").includes("html");
    const said = isText ? xhr.responseText.trim().replace(/&(lt|gt|amp|#34|#39);/g, (name) => ENTITIES[name]) : "";
    const reason = said.replace(PREFIXES, "").replace(HEADER_ADVICE, "").replace(UNREACHABLE, "the upload server does not answer:");
    const sentence = reason ? reason[0].toUpperCase() + reason.slice(1) : MEANING[xhr.status] ?? "The upload was refused.";
    return new Failure(`${sentence} (${xhr.status})`, xhr.status);
  }
}

/** A promise that `start` fulfils, and that the button Cancel rejects after calling what `start` returned. */
export function cancellable(start) {
  const { signal } = page;
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stop = start(resolve);
    signal.addEventListener("abort", () => { stop(); reject(signal.reason); }, { once: true });
  });
}

function pause(seconds) {
  return cancellable((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    return () => clearTimeout(timer);
  });
}

/** Sends a request and returns the XMLHttpRequest when it has ended, however it did. `onAllSent` is called when the body has left. */
function request(method, url, headers = {}, body = null, onSent = null, onAllSent = null) {
  return cancellable((resolve) => {
    const xhr = new XMLHttpRequest();
    let watchdog;
    xhr.open(method, url);
    xhr.setRequestHeader("Authorization", `Bearer ${page.token()}`);
    for (const [name, value] of Object.entries(headers)) {
      xhr.setRequestHeader(name, value);
    }
    if (onSent) {
      const sent = (bytes) => {
        onSent(bytes);
        clearTimeout(watchdog);
        // What cannot be continued is not given up either.
        watchdog = method === "PATCH" && setTimeout(() => xhr.abort(), STALL_MS);
      };
      xhr.upload.onprogress = (event) => sent(event.loaded);
      xhr.upload.onload = () => {
        clearTimeout(watchdog);
        onAllSent?.();
      };
      sent(0);
    }
    xhr.onloadend = () => {
      clearTimeout(watchdog);
      resolve(xhr);
    };
    xhr.send(body);
    return () => xhr.abort();
  });
}

/** Uploads `file`, and returns what the server says of the disk. */
export async function upload(file, shownBy) {
  page = shownBy;
  const kept = interrupted();
  if (kept?.name === file.name && kept.size === file.size && kept.lastModified === file.lastModified) {
    const xhr = await request("HEAD", kept.url, TUS);
    if (offsetIn(xhr) >= 0) {
      return keeping(kept, () => sendAll(partsOf(file, kept, checksum(file)), kept, xhr));
    }
  }
  if (kept) {
    // The server would refuse this upload while it waits for the rest of that one.
    await request("DELETE", kept.url, TUS);
  }
  const { name, size, lastModified } = file;
  const session = { name, size, lastModified, isVerbatim: page.isVerbatim };
  // What is stored as it is cannot be compressed on the way: the server removes nothing.
  const speed = session.isVerbatim ? 0 : await gzipSpeed(file, page.signal);
  const xhr = await begin(session);
  return xhr ? keeping(session, () => sendNew(file, session, xhr, speed)) : uploadWhole(file);
}

async function uploadWhole(file) {
  page.say("Uploading. A broken connection will end this upload: the server cannot continue it.");
  const xhr = await request("POST", WHOLE, page.isVerbatim ? VERBATIM : {}, file, (sent) => page.meter.show(sent), sayVerifying);
  if (xhr.status !== 200) {
    throw Failure.of(xhr);
  }
  return xhr.responseText;
}

function sayVerifying() {
  page.say("Everything is sent. Verifying…");
}

/** Begins a resumable upload and returns the answer; null if the server takes uploads in one request only. */
async function begin(session) {
  const headers = session.place
    // The compressed length is known only at the end.
    ? { "Upload-Defer-Length": 1 }
    : { "Upload-Length": session.size, "X-Cdi-Checksum": CHECKSUM };
  const xhr = await request("POST", RESUMABLE, { ...TUS, ...headers, ...(session.isVerbatim ? VERBATIM : {}) });
  if (!session.place && WHOLE_ONLY.includes(xhr.status)) {
    return null;
  }
  if (xhr.status !== 201) {
    throw Failure.of(xhr);
  }
  // Only the last part counts: the token goes nowhere else than where this page came from.
  session.url = `${RESUMABLE}/${xhr.getResponseHeader("Location").split("/").pop()}`;
  return xhr;
}

/** The upload that this tab began and did not end, if there is one. */
export function interrupted() {
  return JSON.parse(sessionStorage.getItem(INTERRUPTED));
}

function save(session) {
  sessionStorage.setItem(INTERRUPTED, JSON.stringify(session));
}

/** Runs `sending` with its session kept in this tab, so that it can be resumed after a reload of the page. */
async function keeping(session, sending) {
  save(session);
  try {
    return await sending();
  } catch (error) {
    // Nobody will continue: the server need not wait. If this does not arrive, it does in vain.
    const headers = { ...TUS, Authorization: `Bearer ${page.token()}` };
    fetch(session.url, { method: "DELETE", headers }).catch(() => {});
    throw error;
  } finally {
    sessionStorage.removeItem(INTERRUPTED);
  }
}

function partsOf(file, session, sum) {
  return session.place ? new GzipParts(file, sum, session.place, () => save(session), page.signal) : new PlainParts(file, sum);
}

/** A promise of the checksum of `file`, which is computed just ahead of what is sent: so the disk is read once. */
function checksum(file) {
  const sum = crc64(file, (offset) => page.meter.reached(offset - AHEAD_BYTES));
  // Errors are reported where the promise is awaited.
  sum.catch(() => {});
  return sum;
}

/**
 * Sends an upload that has begun. If gzip is faster (`speed`, in bytes per millisecond) than the network, the upload begins again,
 * compressed: the server recognizes gzip by the first bytes, so a stream cannot change from one to the other.
 */
async function sendNew(file, session, xhr, speed) {
  const sum = checksum(file);
  let parts = partsOf(file, session, sum);
  if (speed) {
    const begun = performance.now();
    page.say("Uploading…");
    xhr = await patch(session.url, 0, await parts.part(0));
    const isSlow = FIRST_BYTES / (performance.now() - begun) < speed;
    if (offsetIn(xhr) === FIRST_BYTES && isSlow && (await request("DELETE", session.url, TUS)).status === 204) {
      session.place = { from: 0, sent: 0 };
      xhr = await begin(session);
      save(session);
      parts = partsOf(file, session, sum);
    }
  }
  return sendAll(parts, session, xhr);
}

/** Sends the rest until the server has everything; `xhr` is its last answer. After a broken connection it is asked for its offset. */
async function sendAll(parts, { url, place, size }, xhr) {
  // Bytes that the server should have after the last part, and had before it.
  let offset = offsetIn(xhr);
  let from = offset || 0;
  let words = offset > FIRST_BYTES ? "Continuing at %." : "Uploading…";
  page.say(place ? "Compressing…" : "Uploading…");
  for (let failures = 0; offsetIn(xhr) !== lengthIn(xhr);) {
    if (offsetIn(xhr) === offset) {
      const part = await parts.part(offset);
      page.meter.show(part.position(0));
      if (words) {
        page.say(words.replace("%", page.meter.percent()));
        words = "";
      }
      xhr = await patch(url, offset, part);
      [from, offset] = [offset, offset + part.body.size];
      continue;
    }
    if (page.meter.isFull() && xhr.status === 503 && xhr.responseText.includes("already finished uploading")) {
      // Only the answer to the last byte was lost, and the upload server has ended since.
      break;
    }
    page.meter.rest();
    if (xhr.status === 401) {
      await page.askForToken();
    } else if (PASSING.includes(xhr.status) && ++failures <= ATTEMPTS) {
      page.say(`Connection lost. Trying to continue (${failures} of ${ATTEMPTS})…`);
      await pause(Number(xhr.getResponseHeader("Retry-After")) || Math.min(2 ** (failures - 1), LONGEST_PAUSE_S));
    } else {
      throw Failure.of(xhr);
    }
    xhr = await ask(url, from);
    if (offsetIn(xhr) >= 0) {
      failures = offsetIn(xhr) > from ? 0 : failures;
      from = offset = offsetIn(xhr);
      words = "The connection was lost, continuing at %.";
    }
  }
  const result = xhr.getResponseHeader("X-Cdi-Result");
  // Of a compressed raw disk, the server does not state the size.
  const whole = place ? result?.replace(/\(gzip, raw\)(?!, a disk)/, `$&, a disk of ${size} bytes`) : result;
  return [whole, await parts.verdict()].filter(Boolean).join("\n");
}

function patch(url, offset, { body, headers, isLast, position }) {
  const all = { ...TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": offset, ...headers };
  const onSent = position && ((sent) => page.meter.show(position(sent)));
  return request("PATCH", url, all, body, onSent, isLast ? sayVerifying : null);
}

/** How much the server has, by its answer; NaN if that does not say. */
function offsetIn(xhr) {
  return [200, 201, 204].includes(xhr.status) ? parseInt(xhr.getResponseHeader("Upload-Offset")) : NaN;
}

/** Bytes of the whole upload, by an answer of the server; NaN while it does not know. */
function lengthIn(xhr) {
  return parseInt(xhr.getResponseHeader("Upload-Length"));
}

/** Asks how much the server has. An answer to HEAD has no words: where it refuses, a PATCH of nothing gets them. */
async function ask(url, offset) {
  const xhr = await request("HEAD", url, TUS);
  return xhr.status >= 400 && xhr.status !== 401 ? patch(url, offset, { body: null }) : xhr;
}
