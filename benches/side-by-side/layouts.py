"""Writes OCI layouts with one layer."""

import hashlib
import json
from pathlib import Path


class Layout:
    def __init__(self, folder: Path) -> None:
        self.folder, self.blobs = folder, folder / "blobs/sha256"
        self.blobs.mkdir(parents=True)

    def move(self, file: Path, media_type: str) -> dict:
        """Moves a file to the blobs. Returns its descriptor for manifests."""
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        size = file.stat().st_size
        file.rename(self.blobs / digest)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}

    def add(self, document: dict, media_type: str) -> dict:
        file = self.folder / "document"
        file.write_text(json.dumps(document))
        return self.move(file, media_type)

    def finish(self, config: dict, media_type: str, layer: dict, **fields: str) -> None:
        """Writes the manifest, with these further fields, and what names it."""
        described = self.add(config, media_type)
        manifest = {"schemaVersion": 2, **fields, "config": described, "layers": [layer]}
        entry = self.add(manifest, "application/vnd.oci.image.manifest.v1+json")
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
