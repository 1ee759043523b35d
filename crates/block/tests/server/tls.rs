//! TLS with certificates made by the openssl command line; without it these tests are skipped.

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tiermem_block::nbd::Tls;
use tiermem_block::nbd::client::Wishes;
use tiermem_block::server::{Server, ServerConfig, TlsConfig};
use tiermem_live::tls::TlsFiles;

use super::client::{Client, Wire, connect};
use super::house::{House, memory};

fn openssl(dir: &Path, arguments: &[&str]) -> Option<()> {
    let done = Process::new("openssl").args(arguments).current_dir(dir).output().ok()?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(())
}

const KEY: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// An authority's certificate, and one with its key for each name; none without openssl.
fn issue(dir: &Path, names: &[&str]) -> Option<PathBuf> {
    let start = [&["req", "-x509", "-nodes", "-days", "2"][..], &KEY].concat();
    openssl(dir, &[&start[..], &["-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"]].concat())?;
    std::fs::write(dir.join("extension"), "subjectAltName=DNS:localhost\n").unwrap();
    for name in names {
        let [key, request, cert] = ["key", "csr", "pem"].map(|end| format!("{name}.{end}"));
        let start = [&["req", "-nodes"][..], &KEY].concat();
        openssl(dir, &[&start[..], &["-subj", "/CN=x", "-keyout", &key, "-out", &request]].concat())?;
        let sign = ["x509", "-req", "-in", &request, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        let more = ["-days", "2", "-extfile", "extension", "-out", &cert];
        openssl(dir, &[&sign[..], &more].concat())?;
    }
    Some(dir.join("ca.pem"))
}

/// Wraps sockets as a client that trusts `ca`, and shows a certificate if it has one.
fn wrap(ca: &Path, own: Option<&Path>) -> impl Fn(Box<dyn Wire>) -> Option<Box<dyn Wire>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_file(own).unwrap()];
            let key = PrivateKeyDer::from_pem_file(own.with_extension("key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let config = Arc::new(config);
    move |wire| {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(&config), name).unwrap();
        Some(Box::new(StreamOwned::new(tls, wire)))
    }
}

fn config(dir: &Path, required: bool, client_ca: Option<PathBuf>) -> ServerConfig {
    let (cert, key) = (dir.join("server.pem"), dir.join("server.key"));
    ServerConfig {
        tls: Some(TlsConfig { required, files: TlsFiles { cert, key, client_ca } }),
        ..ServerConfig::default()
    }
}

fn wishes(tls: Tls) -> Wishes {
    Wishes { tls, ..Wishes::new("a") }
}

#[test]
fn who_must_or_may_speak_tls_does() {
    let dir = tempfile::tempdir().unwrap();
    let Some(ca) = issue(dir.path(), &["server", "client"]) else { return };
    let tls = wrap(&ca, None);
    for required in [false, true] {
        let house = House::of(config(dir.path(), required, None), memory);
        for address in [&house.unix, &house.tcp] {
            let mut client = Client::with(connect(address), wishes(Tls::Required), &tls).unwrap();
            let data: Vec<u8> = (0..300_000).map(|n| (n % 251) as u8).collect();
            client.write(1000, &data);
            assert!(client.read(1000, data.len() as u32) == data);
            assert!(house.stats.connections().iter().any(|connection| connection.tls));
            client.disconnect();
            assert!(client.receive().is_err());
            assert_eq!(Client::with(connect(address), wishes(Tls::Off), |_| None).is_ok(), !required);
        }
        // One that does not shake hands ends alone.
        let broken = Client::with(connect(&house.tcp), wishes(Tls::Required), |mut wire| {
            wire.write_all(&[7; 1000]).unwrap();
            Some(wire)
        });
        assert!(broken.is_err());
        house.until(|stats| stats.open() == 0);
    }
}

#[test]
fn clients_show_certificates_where_they_must() {
    let dir = tempfile::tempdir().unwrap();
    let Some(ca) = issue(dir.path(), &["server", "client"]) else { return };
    let house = House::of(config(dir.path(), true, Some(ca.clone())), memory);
    let own = dir.path().join("client.pem");
    let mut known = Client::with(connect(&house.tcp), wishes(Tls::Required), wrap(&ca, Some(&own))).unwrap();
    known.write(0, b"known");
    assert!(Client::with(connect(&house.tcp), wishes(Tls::Required), wrap(&ca, None)).is_err());
    assert_eq!(known.read(0, 5), b"known");
}

#[test]
fn a_key_that_is_anothers_is_told_of_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_) = issue(dir.path(), &["server", "client"]) else { return };
    let mut mixed = config(dir.path(), true, None);
    if let Some(tls) = &mut mixed.tls {
        tls.files.key = dir.path().join("client.key");
    }
    let error = Server::new(memory(), mixed).err().unwrap().to_string();
    assert!(error.contains("client.key") && error.contains("server.pem"), "{error}");
    let missing = Server::new(memory(), config(&dir.path().join("nowhere"), true, None)).err().unwrap();
    assert!(missing.to_string().contains("nowhere"));
}
