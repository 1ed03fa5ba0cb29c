"""The settings of the project: as few as possible, and the database that Holdfast uses as well."""

from psycopg.conninfo import conninfo_to_dict

from holdfast import App

_database = conninfo_to_dict(App().database.url)

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _database.get("host") or "",
        "PORT": _database.get("port") or "",
        "USER": _database.get("user") or "",
        "PASSWORD": _database.get("password") or "",
        "NAME": _database.get("dbname") or "",
    }
}
INSTALLED_APPS = ["shop"]
MIDDLEWARE: list[str] = []
ROOT_URLCONF = "urls"
SECRET_KEY = "only for this example"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
