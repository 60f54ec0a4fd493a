"""An application in Django, with some of SQLAlchemy beside it, as shops of their own are. Called with what it is to do; any error ends it."""

import os
import sys

import django
from django.conf import settings

DIMS = 8


settings.configure(
    INSTALLED_APPS=["shop"],
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    USE_TZ=True,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["APP_DATABASE"],
            "USER": "app",
            "HOST": "127.0.0.1",
            "PORT": os.environ["APP_PORT"],
            # What Django says of PgBouncer in transaction mode.
            "DISABLE_SERVER_SIDE_CURSORS": True,
        }
    },
)
django.setup()

from django.db import connection  # noqa: E402
from django.db.migrations.executor import MigrationExecutor  # noqa: E402


def at(name):
    """The models as they are after a migration."""
    apps = MigrationExecutor(connection).loader.project_state(("shop", name)).apps
    return apps.get_model("shop", "Article"), apps.get_model("shop", "Note")


def migrate(name):
    MigrationExecutor(connection).migrate([("shop", name)])


def fill(rows):
    article, note = at("0001_initial")
    article.objects.bulk_create([article(title=f"title {i}", body=f"article {i}") for i in range(int(rows))])
    note.objects.bulk_create([note(body=f"note {i}") for i in range(int(rows))])


def stale(name):
    """save() writes every column: objects are kept from before their vectors came, or from before somebody else wrote a new text."""
    article, _ = at(name)
    text = "body" if name == "0001_initial" else "content"
    fresh = article(title="fresh", **{text: "fresh"})
    fresh.save()
    kept = list(article.objects.order_by("id")[:4])
    print("kept", flush=True)
    sys.stdin.readline()  # the vectors are there
    fresh.save()  # takes its vector away
    kept[0].views += 1
    kept[0].save()  # the same text, the same vector
    article.objects.filter(pk=kept[1].pk).update(**{text: "somebody else's text"})
    kept[1].views += 1
    kept[1].save()  # the old text again, the old vector
    setattr(kept[2], text, "a text of its own")
    kept[2].save()  # a new text with the vector of the old one
    setattr(kept[3], text, "")
    kept[3].title = ""
    kept[3].save()  # no text, with a vector


def load(seconds):
    """Writers by SQLAlchemy, while migrations run: what no migration touches is read and written all the time."""
    import random
    import time

    import sqlalchemy as sa
    from pgvector.sqlalchemy import Vector
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

    class Base(DeclarativeBase):
        pass

    class Article(Base):
        __tablename__ = "shop_article"
        id: Mapped[int] = mapped_column(primary_key=True)
        title: Mapped[str]
        views: Mapped[int]
        embedding = mapped_column(Vector(DIMS))

    class Note(Base):
        __tablename__ = "shop_note"
        id: Mapped[int] = mapped_column(primary_key=True)
        views: Mapped[int]

    url = f"postgresql+psycopg://app@127.0.0.1:{os.environ['APP_PORT']}/{os.environ['APP_DATABASE']}"
    # What SQLAlchemy and psycopg say of PgBouncer in transaction mode.
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool, connect_args={"prepare_threshold": None})
    print("loading", flush=True)
    done, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end or done < 20:
        with Session(engine) as session, session.begin():
            ids = session.scalars(sa.select(Article.id).order_by(Article.id)).all()
            a = session.get(Article, random.choice(ids))
            a.title = f"title {random.random()}"
            a.views += 1
            session.get(Note, session.scalars(sa.select(Note.id).limit(1)).one()).views += 1
        done += 1
    with Session(engine) as session:
        nearest = sa.select(Article.id, Article.embedding).where(Article.embedding.is_not(None)).order_by(Article.embedding.cosine_distance([1.0] * DIMS)).limit(3)
        for _, vector in session.execute(nearest):
            if len(vector) != DIMS:
                raise SystemExit(f"a vector of {len(vector)}")
    print("done", done, flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
