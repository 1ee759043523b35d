"""An authority of the tests' own, for clients and servers that speak TLS."""

from __future__ import annotations

import pathlib
import subprocess

from programs import tool


class Authority:
    """Certificates signed by an authority of the test's own."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.openssl = tool("openssl")
        self.ca = directory / "ca.pem"
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                  "-subj", "/CN=authority", "-keyout", str(directory / "ca.key"), "-out", str(self.ca))

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([self.openssl, *arguments], capture_output=True, text=True, check=False, cwd=self.directory)
        assert done.returncode == 0, done.stderr

    def issue(self, name: str) -> tuple[pathlib.Path, pathlib.Path]:
        """A certificate for this machine and its key."""
        key, request, cert = (self.directory / f"{name}{end}" for end in (".key", ".csr", ".pem"))
        extension = self.directory / "extension"
        extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                  "-keyout", str(key), "-out", str(request))
        self._run("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self.directory / "ca.key"),
                  "-CAcreateserial", "-days", "2", "-extfile", str(extension), "-out", str(cert))
        return cert, key
