"""Runs gcp-storage-emulator on PORT of loopback, with object versions as in the real service.

As the reference of the XML API says, every response contains the generation and a strong ETag, a
generation other than the requested one is not found, If-Match is respected, and error responses
are XML documents. Objects in the bucket "private" require a token.
"""

import sys
from http import HTTPStatus, server

from gcp_storage_emulator.handlers import objects

emulated = objects.download


def refuse(response, status, code, message):
    response.status = status
    response["Content-Type"] = "application/xml"
    response.write_file(f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>", None)


def download(request, response, storage, *args, **kwargs):
    if request.params["bucket_name"] == "private" and not request.get_header("Authorization"):
        refuse(response, HTTPStatus.UNAUTHORIZED, "AuthenticationRequired", "Authentication required.")
        return
    emulated(request, response, storage, *args, **kwargs)
    gone = response.status == HTTPStatus.NOT_FOUND
    if not gone:
        found = storage.get_file_obj(request.params["bucket_name"], request.params["object_id"])
        etag = '"' + found["etag"] + '"'
        gone = request.query.get("generation", [found["generation"]])[0] != found["generation"]
    if gone:
        refuse(response, HTTPStatus.NOT_FOUND, "NoSuchKey", "The specified key does not exist.")
    elif request.get_header("If-Match", etag) != etag:
        refuse(response, HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed", "A condition was not met.")
    else:
        response["ETag"] = etag
        response["x-goog-generation"] = found["generation"]
        response["Accept-Ranges"] = "bytes"


# The routes are made when the server is imported.
objects.download = download
# One request must not wait for the end of another.
server.HTTPServer = server.ThreadingHTTPServer

from gcp_storage_emulator.server import create_server  # noqa: E402

if __name__ == "__main__":
    emulator = create_server("127.0.0.1", int(sys.argv[1]), in_memory=True, default_bucket="images")
    emulator.run()
