from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0003_bigauto")]
    operations = [
        migrations.AlterField("article", "content", models.CharField(max_length=500)),
        migrations.AlterField("note", "content", models.CharField(max_length=500)),
    ]
