// Uploads a file with tus-js-client: node upload.cjs FOLDER URL TOKEN FILE [deferred]
// FOLDER is what `build` prints. Prints the offset at which it resumes after each failure.

const { createReadStream, statSync } = require("node:fs");
const { createRequire } = require("node:module");
const { PassThrough } = require("node:stream");

const [folder, endpoint, token, path, deferred] = process.argv.slice(2);
const tus = createRequire(`${folder}/package.json`)("tus-js-client");

// If the length of a stream were a multiple of this, tus-js-client would wait for ever for its end.
const chunkSize = 1_000_000;

// A stream whose length the client cannot know.
const content = deferred ? createReadStream(path).pipe(new PassThrough()) : createReadStream(path);

const upload = new tus.Upload(content, {
  endpoint,
  headers: { Authorization: token },
  retryDelays: Array(20).fill(500),
  ...(deferred ? { uploadLengthDeferred: true, chunkSize } : { uploadSize: statSync(path).size }),
  onAfterResponse: (request, response) => {
    if (request.getMethod() === "HEAD") {
      console.log(`goes on at ${response.getHeader("Upload-Offset")}`);
    }
  },
  onError: (error) => {
    console.error(String(error));
    process.exit(1);
  },
  onSuccess: () => console.log("done"),
});
upload.start();
