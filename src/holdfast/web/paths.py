"""The path that the dashboard is mounted under. Everything that leads somewhere begins with it."""

from starlette.requests import HTTPConnection


def root_of(request: HTTPConnection) -> str:
    """The prefix, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def path_of(request: HTTPConnection) -> str:
    """The path below the prefix."""
    path, root = str(request.scope["path"]), root_of(request)
    return path.removeprefix(root) or "/" if path == root or path.startswith(f"{root}/") else path
