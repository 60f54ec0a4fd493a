import pgvector.django
from django.db import migrations, models


class Migration(migrations.Migration):
    # Article has its vector in a column, which save() writes along with all others; Note has them in a table beside it.
    operations = [
        migrations.CreateModel(
            "Article",
            [
                ("id", models.AutoField(primary_key=True)),
                ("title", models.TextField()),
                ("body", models.TextField()),
                ("views", models.IntegerField(default=0)),
                ("embedding", pgvector.django.VectorField(dimensions=8, null=True)),
            ],
        ),
        migrations.CreateModel("Note", [("id", models.AutoField(primary_key=True)), ("body", models.TextField()), ("views", models.IntegerField(default=0))]),
    ]
