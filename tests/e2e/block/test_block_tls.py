"""TLS with clients of another make: nbdinfo, nbdcopy and qemu-img, with certificates and without."""

from __future__ import annotations

import filecmp
import pathlib
import re
import shutil
from collections.abc import Callable

import pytest

from authority import Authority
from volume_server import MIB, VolumeServer, image, run

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 16 * MIB


def authority(directory: pathlib.Path) -> Authority:
    directory.mkdir()
    return Authority(directory)


def serve_tls(serve_volumes: Serve, tmp_path: pathlib.Path, signed: Authority, more: str = "") -> tuple[VolumeServer, int]:
    """A server with one export that speaks TLS on a port, and the port."""
    cert, key = signed.issue("server")
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    config = f"""
[cache]
path = "{tmp_path / "cache"}"
capacity = "32MiB"
[tls]
cert = "{cert}"
key = "{key}"
{more}
[[export]]
name = "disk"
backing = "{disk}"
"""
    server = serve_volumes({"disk": disk}, config=config, flags=("--listen", "127.0.0.1:0"))
    port = re.search(r"nbds://127\.0\.0\.1:(\d+)/", server.said)
    assert port, server.said
    return server, int(port[1])


def trusting(directory: pathlib.Path, trusted: Authority, own: Authority | None = None) -> pathlib.Path:
    """A folder as gnutls clients want it: whom they trust, and who they are."""
    directory.mkdir()
    shutil.copy(trusted.ca, directory / "ca-cert.pem")
    if own:
        cert, key = own.issue(directory.name)
        shutil.copy(cert, directory / "client-cert.pem")
        shutil.copy(key, directory / "client-key.pem")
    return directory


def uri(port: int, certificates: pathlib.Path) -> str:
    return f"nbds://localhost:{port}/disk?tls-certificates={certificates}"


def test_images_go_in_and_out_encrypted(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    signed = authority(tmp_path / "authority")
    server, port = serve_tls(serve_volumes, tmp_path, signed)
    client = trusting(tmp_path / "client", signed)
    assert run("nbdinfo", "--size", uri(port, client)).stdout.strip() == str(VOLUME_BYTES)
    assert "TLS" in run("nbdinfo", uri(port, client)).stdout
    source = image(tmp_path / "source", VOLUME_BYTES, seed=1)
    run("nbdcopy", "--flush", source, uri(port, client))
    credentials = f"tls-creds-x509,id=tls,endpoint=client,dir={client}"
    place = f"driver=nbd,host=localhost,port={port},export=disk,tls-creds=tls"
    run("qemu-img", "convert", "--object", credentials, "--image-opts", place, "-O", "raw", tmp_path / "copy")
    assert filecmp.cmp(source, tmp_path / "copy", shallow=False)
    assert server.stop() == 0, server.log()
    assert filecmp.cmp(source, tmp_path / "disk.img", shallow=False)


@pytest.mark.parametrize("required", [True, False])
def test_who_does_not_speak_it_is_refused_where_it_must_be_spoken(
    serve_volumes: Serve, tmp_path: pathlib.Path, required: bool
) -> None:
    signed = authority(tmp_path / "authority")
    _, port = serve_tls(serve_volumes, tmp_path, signed, "" if required else "required = false")
    done = run("nbdinfo", "--size", f"nbd://localhost:{port}/disk", expect=None)
    assert (done.returncode != 0) is required, done
    assert run("nbdinfo", "--size", uri(port, trusting(tmp_path / "client", signed))).returncode == 0


def test_certificates_of_strangers_are_worth_nothing(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    signed, stranger = authority(tmp_path / "authority"), authority(tmp_path / "stranger")
    _, port = serve_tls(serve_volumes, tmp_path, signed, f'client_ca = "{signed.ca}"')
    for name, own in [("nobody", None), ("strange", stranger)]:
        done = run("nbdinfo", "--size", uri(port, trusting(tmp_path / name, signed, own)), expect=None)
        assert done.returncode != 0, done
    # And a client need not trust the server.
    done = run("nbdinfo", "--size", uri(port, trusting(tmp_path / "wary", stranger, signed)), expect=None)
    assert done.returncode != 0, done
    assert run("nbdinfo", "--size", uri(port, trusting(tmp_path / "known", signed, signed))).returncode == 0
