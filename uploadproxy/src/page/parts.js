// The parts in which a file is sent: as it is, or compressed.

const MIB = 1 << 20;
/** Sent first, as it is: by then the upload server knows whether it can make a disk of the file. */
export const FIRST_BYTES = MIB;
// Bytes of the file in one member of gzip, which is sent in one request. With smaller ones the round trip between requests would be felt.
const MEMBER_BYTES = 32 * MIB;
// Distance by which the checksum may be ahead of what is sent: the second read then finds the bytes in memory.
export const AHEAD_BYTES = 64 * MIB;
const SAMPLE_BYTES = MIB / 4;
/** The name of the checksum, as the upload server knows it. */
export const CHECKSUM = "crc64nvme";

// Tables of CRC-64/NVME in halves of 32 bits: BigInt is many times slower.
const [HIGH, LOW] = [new Int32Array(256), new Int32Array(256)];
for (let byte = 0; byte < 256; byte++) {
  let [high, low] = [0, byte];
  for (let bit = 0; bit < 8; bit++) {
    const isOdd = low & 1;
    low = (low >>> 1) | (high << 31);
    high >>>= 1;
    if (isOdd) {
      high ^= 0x9a6c9329;
      low ^= 0xac4bc9b5;
    }
  }
  HIGH[byte] = high;
  LOW[byte] = low;
}

/** The bytes of `file` between two places. */
async function read(file, from, end) {
  try {
    const bytes = new Uint8Array(await file.slice(from, end).arrayBuffer());
    if (bytes.length === end - from) {
      return bytes;
    }
  } catch {
    // Firefox returns fewer bytes, Chromium fails.
  }
  throw new Error("The file cannot be read: was it changed, moved or taken away? Choose it again.");
}

function updateCrc(crc, bytes) {
  let [high, low] = crc;
  for (let i = 0; i < bytes.length; i++) {
    const index = (low ^ bytes[i]) & 255;
    low = ((low >>> 8) | (high << 24)) ^ LOW[index];
    high = (high >>> 8) ^ HIGH[index];
  }
  return [high, low];
}

/** CRC-64/NVME of `file` in hexadecimal digits. Waits for `mayRead(offset)` before it reads. */
export async function crc64(file, mayRead) {
  let crc = [-1, -1];
  for (let at = 0; at < file.size; at += MIB) {
    await mayRead(at);
    crc = updateCrc(crc, await read(file, at, Math.min(at + MIB, file.size)));
  }
  return crc.map((half) => (~half >>> 0).toString(16).padStart(8, "0")).join("");
}

/** A part of `file` as one member of gzip. Pieces of a fixed size make it the same each time. */
async function gzip(file, from, end, signal) {
  const { readable, writable } = new CompressionStream("gzip");
  const member = new Response(readable).blob();
  const writer = writable.getWriter();
  for (let at = from; at < end; at += MIB) {
    signal.throwIfAborted();
    await writer.write(await read(file, at, Math.min(at + MIB, end)));
  }
  await writer.close();
  return member;
}

/** Bytes of `file` that gzip takes in a millisecond, by four samples; 0 if they do not shrink by a tenth, or cannot be compressed. */
export async function gzipSpeed(file, signal) {
  if (!globalThis.CompressionStream || file.size <= FIRST_BYTES) {
    return 0;
  }
  const places = [0, 1, 2, 3].map((quarter) => Math.floor((file.size * quarter) / 4));
  const samples = new Blob(places.map((at) => file.slice(at, at + SAMPLE_BYTES)));
  const begun = performance.now();
  const { size } = await gzip(samples, 0, samples.size, signal);
  return size > 0.9 * samples.size ? 0 : samples.size / (performance.now() - begun);
}

/** The file as it is: its first bytes, the rest but for its last bytes, and those with the checksum, which the server compares. */
export class PlainParts {
  /** `sum` is a promise of the checksum of `file`. */
  constructor(file, sum) {
    Object.assign(this, { file, sum });
  }

  /** The part at `offset`. `position` maps sent bytes of the part to an offset in the file. */
  async part(offset) {
    const { size } = this.file;
    const end = Math.min([FIRST_BYTES, size - FIRST_BYTES, size].find((end) => end > offset), size);
    const isLast = end === size;
    const headers = isLast ? { "X-Cdi-Checksum": `${CHECKSUM}:${await this.sum}` } : {};
    // XMLHttpRequest would report a changed file as a broken connection.
    await read(this.file, offset, offset + 1);
    return { body: this.file.slice(offset, end), headers, isLast, position: (sent) => offset + sent };
  }

  /** A line for the user at the end: what the server has verified. */
  async verdict() {
    return `checksum of the file: ${CHECKSUM} ${await this.sum}, verified by the server`;
  }
}

/** The file as members of gzip. An upload resumes in the middle of one, since the same bytes make the same member. */
export class GzipParts {
  members = new Map();

  /** `place`: the offset of the current member in the file (`from`) and in the stream (`sent`); `save` keeps it. */
  constructor(file, sum, place, save, signal) {
    Object.assign(this, { file, sum, place, save, signal });
  }

  member(from) {
    if (!this.members.has(from)) {
      const member = gzip(this.file, from, this.end(from), this.signal);
      // Errors are reported where the promise is awaited.
      member.catch(() => {});
      this.members.set(from, member);
    }
    return this.members.get(from);
  }

  end(from) {
    return Math.min(from + MEMBER_BYTES, this.file.size);
  }

  async part(offset) {
    const { place } = this;
    let member = await this.member(place.from);
    if (offset === place.sent + member.size) {
      this.members.delete(place.from);
      Object.assign(place, { from: this.end(place.from), sent: offset });
      this.save();
      member = await this.member(place.from);
    }
    const { from, sent } = place;
    if (offset < sent || offset > sent + member.size) {
      throw new Error("This upload cannot be resumed: the server has another part of it. Upload the file again.");
    }
    const end = this.end(from);
    const isLast = end === this.file.size;
    if (!isLast) {
      // While this one is sent.
      this.member(end);
    }
    return {
      body: member.slice(offset - sent),
      headers: isLast ? { "Upload-Length": sent + member.size } : {},
      isLast,
      position: (more) => Math.floor(from + ((end - from) * (offset - sent + more)) / member.size),
    };
  }

  async verdict() {
    return `checksum of the file: ${CHECKSUM} ${await this.sum}; the server has verified the CRC-32 of each compressed part`;
  }
}
