"""Who uses the command line."""

from holdfast.errors import ConfigError


def me() -> str:
    """Who sits at this terminal: an embedded server knows everybody as the same user."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise ConfigError("this process has no user name: set the environment variable USER") from None
