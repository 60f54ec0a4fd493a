from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.RenameField("article", "body", "content"),
        migrations.RenameField("note", "body", "content"),
    ]
