from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0002_rename")]
    operations = [
        migrations.AlterField("article", "id", models.BigAutoField(primary_key=True)),
        migrations.AlterField("note", "id", models.BigAutoField(primary_key=True)),
    ]
