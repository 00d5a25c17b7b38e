"""pgbouncer in front of a test's server."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.servers import with_options

__all__ = ["PgBouncer"]

STARTED_WITHIN = 10.0


class PgBouncer:
    """A pooler process; whoever starts it calls `stop` in the end.

    Args:
        dsn: what it hands on to, with the account there.
        directory: for its configuration and its log.
        mode: `transaction` or `session`.
        ignore: startup parameters that it takes and forgets; others than its own it refuses.
        sessions: how many connections to the server it keeps.
    """

    def __init__(
        self, dsn: str, directory: Path, *, mode: str = "transaction", ignore: str = "", sessions: int = 5
    ) -> None:
        program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if program is None:
            pytest.skip("pgbouncer is not on this machine")
        server = conninfo_to_dict(dsn)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        self._config = directory / "pgbouncer.ini"
        self._log = directory / "pgbouncer.log"
        self._program = program
        self._config.write_text(
            f"""[databases]
{server["dbname"]} = host={server["host"]} port={server["port"]} user={server["user"]} password={server["password"]}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {sessions}
max_client_conn = 200
ignore_startup_parameters = {ignore}
stats_period = 3600
"""
        )
        # It refuses to be root, and becomes this account once it has read the configuration.
        self._arguments = ["-u", pwd.getpwnam("nobody").pw_name] if os.geteuid() == 0 else []
        self.dsn = with_options(dsn, host="127.0.0.1", port=self.port)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with self._log.open("ab") as log:
            # On a leash: it ends when this process does, however that comes about.
            leash = '"$@" & read -r _; kill -9 $!'
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", leash, "sh", self._program, *self._arguments, str(self._config)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        ends = time.monotonic() + STARTED_WITHIN
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=2).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > ends:
                    raise AssertionError(f"pgbouncer does not start:\n{self._log.read_text()[-2000:]}") from None
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Kill it: its clients lose their connections, and so does the server."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
