// Uploads a file through the proxy that serves this page: with tus 1.0.0 where the upload server offers it
// (https://tus.io/protocols/resumable-upload), else in one request.
// XMLHttpRequest, because fetch does not tell how much is sent.

const WHOLE = "v1beta1/upload";
const RESUMABLE = "v1beta1/upload-resumable";
const TUS = { "Tus-Resumable": "1.0.0" };

// How often in a row a resumable upload may fail to move on. The pauses between add up to four minutes; the upload
// server keeps what it has for longer.
const ATTEMPTS = 12;
const LONGEST_PAUSE_S = 30;
// A connection over which nothing has moved for so long is taken for dead.
const STALL_MS = 60_000;
const SPEED_WINDOW_MS = 10_000;
// Sent first, and answered for: by then the upload server knows whether it can make a disk of the file. A browser shows
// an answer only when everything is sent, which may take hours.
const FIRST_BYTES = 1 << 20;
// Where this tab keeps an upload that a reload or a crash interrupts. It is of no use without a token.
const INTERRUPTED = "interrupted-upload";
const TITLE = document.title;

// What passes by itself: a broken connection (0), an answer to fewer bytes than were sent (204), a proxy or server
// that starts anew.
const PASSING = [0, 204, 409, 423, 429, 502, 503, 504];

const MEANING = {
  400: "The token is for something else, the image is not in order, or the volume is too small.",
  401: "The token is not valid, or has expired. Ask for a new one.",
  404: "There is no upload here any more.",
  409: "The volume has been uploaded to already.",
  410: "The upload server has given up this upload. Begin again.",
  415: "This file is no disk image.",
  413: "Something on the way does not let an image of this size through.",
  429: "Too many uploads are going on. Try again later.",
  500: "The upload broke off, or the disk could not be written.",
  502: "The upload server cannot be reached. Try again later.",
  503: "The volume takes no upload now: it does not exist, is not ready, is complete, or has another upload.",
};

const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&#34;": '"', "&#39;": "'" };

const [form, tokenField, tokenHint, fileField, startButton, cancelButton, transfer, bar, figures, status, answer] =
  ["form", "token", "token-hint", "file", "start", "cancel", "transfer", "bar", "figures", "status", "answer"]
    .map((id) => document.getElementById(id));

const HINT = tokenHint.textContent;

// The token lives in its field, here, and in the Authorization header only.
let token = "";
let cancellation = null;
let onSubmit = start;

/** An upload that has failed: in words, and with what the server said. */
class Failure extends Error {
  constructor(message, said = "") {
    super(message);
    this.said = said;
  }

  static of(xhr) {
    if (xhr.status === 0) {
      return new Failure("The connection broke, and the upload could not be continued.");
    }
    const isText = !(xhr.getResponseHeader("Content-Type") ?? "").includes("html");
    const said = isText ? xhr.responseText.trim().replace(/&(lt|gt|amp|#34|#39);/g, (name) => ENTITIES[name]) : "";
    return new Failure(`${MEANING[xhr.status] ?? "The upload was refused."} (${xhr.status})`, said);
  }
}

/** Shows how much is sent, how fast, and how long the rest takes. */
class Meter {
  constructor(total) {
    this.total = total;
    this.sent = 0;
    this.samples = [];
    this.show(0);
  }

  show(sent) {
    const now = performance.now();
    // An upload goes on where the server has got to, before the end of what was sent: that step back is no speed.
    if (sent < this.sent) {
      this.samples = [];
    }
    this.sent = sent;
    this.samples.push({ now, sent });
    this.samples = this.samples.filter((sample) => now - sample.now < SPEED_WINDOW_MS);
    const [first] = this.samples;
    const speed = (sent - first.sent) / ((now - first.now) / 1000);
    const parts = [`${size(sent)} of ${size(this.total)}`, percent(sent, this.total)];
    if (speed > 0) {
      parts.push(`${size(speed)}/s`);
    }
    if (speed > 0 && sent < this.total) {
      parts.push(`${duration((this.total - sent) / speed)} left`);
    }
    bar.value = sent / this.total;
    document.title = `${percent(sent, this.total)} · ${TITLE}`;
    figures.textContent = parts.join(" · ");
  }
}

function percent(part, total) {
  return `${Math.floor((100 * part) / total)} %`;
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), units.length - 1);
  return `${(bytes / 1024 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

function duration(seconds) {
  const whole = Math.ceil(seconds);
  const [h, min, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h} h ${min} min` : min ? `${min} min ${s} s` : `${s} s`;
}

/** A promise that `start` fulfils, and that the button Cancel rejects after calling what `start` returned. */
function cancellable(start) {
  const { signal } = cancellation;
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
    xhr.setRequestHeader("Authorization", `Bearer ${token}`);
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
async function upload(file) {
  const meter = new Meter(file.size);
  const kept = interrupted();
  if (kept?.name === file.name && kept.size === file.size && kept.lastModified === file.lastModified) {
    const offset = offsetIn(await request("HEAD", kept.url, TUS));
    if (offset >= 0) {
      return uploadResumable(file, meter, kept.url, offset);
    }
  }
  const created = await request("POST", RESUMABLE, { ...TUS, "Upload-Length": file.size });
  if ([404, 405, 501].includes(created.status)) {
    return uploadWhole(file, meter);
  }
  if (created.status !== 201) {
    throw Failure.of(created);
  }
  // Only the last part counts: the token goes nowhere else than where this page came from.
  const url = `${RESUMABLE}/${created.getResponseHeader("Location").split("/").pop()}`;
  return uploadResumable(file, meter, url, 0);
}

async function uploadWhole(file, meter) {
  say("Uploading. A broken connection will end this upload: the server cannot continue it.");
  const xhr = await request("POST", WHOLE, {}, file, (sent) => meter.show(sent), sayVerifying);
  if (xhr.status !== 200) {
    throw Failure.of(xhr);
  }
  return xhr.responseText;
}

function sayVerifying() {
  say("Everything is sent. Verifying…");
}

/** The upload that this tab began and did not end, if there is one. */
function interrupted() {
  return JSON.parse(sessionStorage.getItem(INTERRUPTED));
}

/** Sends `file` from `offset` on to the upload at `url`, which a reload of the page does not end. */
async function uploadResumable(file, meter, url, offset) {
  const { name, size, lastModified } = file;
  sessionStorage.setItem(INTERRUPTED, JSON.stringify({ url, name, size, lastModified }));
  try {
    return await sendAll(file, meter, url, offset);
  } catch (error) {
    // Nobody will continue: the server need not wait. If this does not arrive, it does in vain.
    fetch(url, { method: "DELETE", headers: { ...TUS, Authorization: `Bearer ${token}` } }).catch(() => {});
    throw error;
  } finally {
    sessionStorage.removeItem(INTERRUPTED);
  }
}

/** Sends what is missing until the server has it all. After each cut the server is asked how much it has. */
async function sendAll(file, meter, url, offset) {
  const patch = (offset, body, onSent, onAllSent) => request("PATCH", url, {
    ...TUS,
    "Content-Type": "application/offset+octet-stream",
    "Upload-Offset": offset,
  }, body, onSent, onAllSent);
  const sendFrom = async (offset, end = file.size) => patch(offset, await part(file, offset, end),
    (sent) => meter.show(offset + sent), end === file.size ? sayVerifying : null);
  say(offset ? `Continuing at ${percent(offset, file.size)}…` : "Uploading…");
  let xhr;
  if (offset < FIRST_BYTES && FIRST_BYTES < file.size) {
    xhr = await sendFrom(offset, FIRST_BYTES);
    offset = offsetIn(xhr) === FIRST_BYTES ? FIRST_BYTES : offset;
  }
  if (!xhr || offset === FIRST_BYTES) {
    xhr = await sendFrom(offset);
  }
  for (let failures = 0; offsetIn(xhr) !== file.size;) {
    if (meter.sent === file.size && xhr.status === 503 && xhr.responseText.includes("already finished uploading")) {
      // Only the answer to the last byte was lost, and the upload server has ended since.
      return "";
    }
    if (xhr.status === 401) {
      await askForToken();
    } else if (PASSING.includes(xhr.status) && ++failures <= ATTEMPTS) {
      say(`Connection lost. Trying to continue (${failures} of ${ATTEMPTS})…`);
      await pause(Number(xhr.getResponseHeader("Retry-After")) || Math.min(2 ** (failures - 1), LONGEST_PAUSE_S));
    } else {
      throw Failure.of(xhr);
    }
    xhr = await ask(url, () => patch(offset, null));
    const taken = offsetIn(xhr);
    if (taken < file.size) {
      failures = taken > offset ? 0 : failures;
      offset = taken;
      say(`The connection was lost, continuing at ${percent(offset, file.size)}.`);
      xhr = await sendFrom(offset);
    }
  }
  return xhr.getResponseHeader("X-Cdi-Result") ?? "";
}

/** How much the server has, by its answer; NaN if that does not say. */
function offsetIn(xhr) {
  return [200, 204].includes(xhr.status) ? parseInt(xhr.getResponseHeader("Upload-Offset")) : NaN;
}

/** Asks how much the server has. An answer to HEAD has no words: where it refuses, a PATCH of nothing gets them. */
async function ask(url, patchNothing) {
  const xhr = await request("HEAD", url, TUS);
  return xhr.status >= 400 && xhr.status !== 401 ? patchNothing() : xhr;
}

/** What lies between. A file that was changed is not read, which looks like a cut to XMLHttpRequest. */
async function part(file, offset, end) {
  try {
    await file.slice(offset, offset + 1).arrayBuffer();
  } catch {
    throw new Failure("The file cannot be read: was it changed, moved or taken away? Choose it again.");
  }
  return file.slice(offset, end);
}

/** The token in its field, without what people copy along. */
function typedToken() {
  return tokenField.value.trim().replace(/^Bearer\s+/i, "");
}

/** Says what a token is for: its middle part is readable, and only the server can tell whether it is good. */
function describeToken() {
  let words = HINT;
  try {
    const claims = typedToken().split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const { namespace, name, exp } = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(claims), (c) => c.charCodeAt(0))));
    const until = new Date(exp * 1000);
    words = until < new Date()
      ? `This token was for ${namespace}/${name}, and has expired at ${until.toLocaleTimeString()}. Ask for a new one.`
      : `For the claim ${namespace}/${name}, until ${until.toLocaleTimeString()}.`;
  } catch {
    // No token yet.
  }
  tokenHint.textContent = words;
}

/** Takes the token from its field. False, with a sentence for the user, if there is none. */
function takeToken() {
  token = typedToken();
  const isToken = /^[\w.~+/-]+$/.test(token);
  if (!isToken) {
    say("Paste the upload token: one long word of letters, digits, dots, hyphens and underscores.", "failed");
    tokenField.focus();
  }
  return isToken;
}

/** Waits for a new token in the middle of an upload. */
function askForToken() {
  say("The token has expired. Paste a new one to continue where the upload stopped.");
  tokenField.value = "";
  tokenField.disabled = startButton.hidden = false;
  startButton.textContent = "Continue";
  tokenField.focus();
  return cancellable((resolve) => {
    onSubmit = () => {
      if (takeToken()) {
        tokenField.disabled = startButton.hidden = true;
        resolve();
      }
    };
    return () => {};
  });
}

function say(words, kind = "") {
  status.textContent = words;
  status.dataset.kind = answer.dataset.kind = bar.dataset.kind = kind;
}

function showIdle(isIdle) {
  tokenField.disabled = fileField.disabled = startButton.hidden = !isIdle;
  cancelButton.hidden = isIdle;
  startButton.textContent = "Upload";
  onSubmit = start;
}

/** Shows the server's own words. */
function showAnswer(words) {
  answer.textContent = words;
  answer.hidden = !words;
}

async function start() {
  const [file] = fileField.files;
  answer.hidden = true;
  if (!takeToken()) {
    return;
  }
  if (!file?.size) {
    say(file ? "The file is empty." : "Choose a file.", "failed");
    fileField.focus();
    return;
  }
  cancellation = new AbortController();
  showIdle(false);
  cancelButton.focus();
  transfer.hidden = false;
  say("Asking the server…");
  try {
    const said = await upload(file);
    tokenField.value = "";
    describeToken();
    say(`Done. ${file.name} is on the volume.`, "done");
    showAnswer(said);
  } catch (error) {
    say(cancellation.signal.aborted ? "Cancelled." : error.message, "failed");
    showAnswer(error.said ?? "");
  }
  token = "";
  cancellation = null;
  document.title = TITLE;
  showIdle(true);
  startButton.focus();
}

form.onsubmit = (event) => {
  event.preventDefault();
  onSubmit();
};
cancelButton.onclick = () => cancellation.abort();
addEventListener("beforeunload", (event) => cancellation && event.preventDefault());
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dragging");
});
addEventListener("dragleave", (event) => document.body.classList.toggle("dragging", event.relatedTarget !== null));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  const { files } = event.dataTransfer;
  if (!cancellation && files.length > 1) {
    say("One volume takes one image: drop one file.", "failed");
  } else if (!cancellation && files.length === 1) {
    fileField.files = files;
    say("");
  }
});
tokenField.addEventListener("input", describeToken);

showIdle(true);
// A link may bring the token, which then leaves the address: the part behind # is sent to no server.
if (location.hash.startsWith("#token=")) {
  tokenField.value = decodeURIComponent(location.hash.slice("#token=".length));
  history.replaceState(null, "", location.pathname);
}
describeToken();
if (interrupted()) {
  say(`The upload of ${interrupted().name} was interrupted. Choose that file again, and it continues.`);
}
