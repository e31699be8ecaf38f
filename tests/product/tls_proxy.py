# SPDX-License-Identifier: Apache-2.0
"""A proxy that speaks TLS for a door, as one stands before it in production: bytes in both directions, nothing else."""
import socket
import ssl
import subprocess
import threading


def certificate(folder):
    """A key and a certificate of its own for localhost; the certificate is what a client has to trust.  Return: both paths"""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-keyout", key, "-out", cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, capture_output=True)
    cert.chmod(0o644)
    return key, cert


class TlsProxy:
    """https://localhost:@port, while the block lasts, is what http://@address is"""

    def __init__(self, address, folder):
        host, port = address.rsplit(":", 1)
        self.to = (host, int(port))
        key, self.cert = certificate(folder)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.cert, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.handshakes = self.refusals = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client):
        try:
            inside = self.tls.wrap_socket(client, server_side=True)
        except (ssl.SSLError, OSError):
            self.refusals += 1
            return
        self.handshakes += 1
        door = socket.create_connection(self.to)
        threading.Thread(target=self._pass, args=(door, inside), daemon=True).start()
        self._pass(inside, door)

    @staticmethod
    def _pass(this, that):
        try:
            while data := this.recv(65536):
                that.sendall(data)
        except OSError:
            pass
        try:
            that.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        that.close()
