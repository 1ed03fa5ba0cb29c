"""The embedded server of commands that bring their own database: started if need be, and then also stopped."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.embedded import Server


class OwnServer:
    """The embedded server of this project.

    It is stopped at the end only if it was started here: one that ran before goes on.
    """

    def __init__(self) -> None:
        self.started: Server | None = None

    def start(self) -> "Server":
        """The server; started unless it runs."""
        from holdfast import embedded

        was_running = embedded.find() is not None
        server = embedded.start()
        if not was_running:
            self.started = server
        return server

    def stop(self) -> bool:
        """Stops it if it was started here; whether it was."""
        server, self.started = self.started, None
        if server is not None:
            server.stop()
        return server is not None
