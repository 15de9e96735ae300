"""Serves Keystone or Glance on a loopback port and prints its URL: serve.py keystone|glance FOLDER

The folder contains the configuration and data. Both are WSGI applications, which need a web
server.
"""

import os
import sys

name, folder = sys.argv[1:]
# Both read the arguments themselves.
del sys.argv[1:]
if name == "keystone":
    from keystone.server.wsgi import initialize_public_application

    os.environ["OS_KEYSTONE_CONFIG_FILES"] = os.path.join(folder, "keystone.conf")
    application = initialize_public_application()
else:
    from glance.common.wsgi_app import init_app

    os.environ["OS_GLANCE_CONFIG_DIR"] = folder
    application = init_app()

from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: E402


class Handler(WSGIRequestHandler):
    # Chunks, as behind the web servers that clouds use.
    protocol_version = "HTTP/1.1"

    def log_request(self, code="-", size="-"):
        pass


server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
print(f"listening on http://127.0.0.1:{server.port}", file=sys.stderr, flush=True)
server.serve_forever()
