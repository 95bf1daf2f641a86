"""Django: its introspection, `inspectdb`, and the ORM over tables that it does not manage."""

import datetime
import io
import os

import django
from checks import check
from django.conf import settings
from django.core.management import call_command

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}},
    INSTALLED_APPS=[],
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402
from django.db.models import Avg, Count, F, Max, Q, Sum  # noqa: E402
from django.db.models.functions import ExtractYear, Lower, TruncMonth  # noqa: E402


class Thing(models.Model):
    """The table `things`."""

    id = models.IntegerField(primary_key=True)
    flag = models.BooleanField(null=True)
    small = models.SmallIntegerField(null=True)
    price = models.DecimalField(max_digits=12, decimal_places=2, null=True)
    name = models.TextField(null=True)
    day = models.DateField(null=True)
    moment = models.DateTimeField(null=True)

    class Meta:
        app_label = "doors"
        managed = False
        db_table = "things"


introspection = connection.introspection


def inspected(*tables):
    text = io.StringIO()
    call_command("inspectdb", *tables, stdout=text)
    return [line for line in text.getvalue().splitlines() if line.strip()]


def with_cursor(ask):
    with connection.cursor() as cursor:
        return ask(cursor)


check("vendor and version", lambda: [connection.vendor, connection.features.minimum_database_version])
check("table_names", lambda: sorted(introspection.table_names(include_views=True)))
check("get_table_list", lambda: with_cursor(lambda c: sorted(map(str, introspection.get_table_list(c)))))
check("get_table_description", lambda: with_cursor(lambda c: introspection.get_table_description(c, "things")))
check("get_constraints", lambda: with_cursor(lambda c: introspection.get_constraints(c, "things")))
check("get_relations", lambda: with_cursor(lambda c: introspection.get_relations(c, "things")))
check("get_sequences", lambda: with_cursor(lambda c: introspection.get_sequences(c, "things")))
check("inspectdb of a table", lambda: inspected("things"))
check("inspectdb", lambda: inspected())
check("inspectdb with views", lambda: inspected("--include-views"))

rows = Thing.objects.order_by("id")
check("all rows", lambda: list(rows.values_list()))
check("filter", lambda: list(rows.filter(Q(price__gt=0) | Q(name__isnull=True)).values_list("id")))
check("filter by text", lambda: list(rows.filter(name__icontains="P").values_list("id")))
check("filter by a start", lambda: list(rows.filter(name__startswith="p").values_list("id")))
check("filter by a pattern", lambda: list(rows.filter(name__regex="^p.n$").values_list("id")))
check("filter by a list", lambda: list(rows.filter(id__in=[1, 4]).values_list("id")))
check("filter by a date", lambda: list(rows.filter(day__gte=datetime.date(2024, 1, 1)).values_list("id")))
check("filter by a year", lambda: list(rows.filter(day__year=2024).values_list("id")))
check("filter by an instant", lambda: list(rows.filter(moment__date=datetime.date(2024, 2, 29)).values_list("id")))
check("get", lambda: Thing.objects.get(pk=1).name)
check("slice", lambda: list(rows[1:3].values_list("id")))
check("exists", lambda: rows.filter(id=99).exists())
check("aggregate", lambda: rows.aggregate(Count("id"), Sum("price"), Avg("small"), Max("day")))
check("group", lambda: list(Thing.objects.values("flag").annotate(n=Count("id")).order_by("flag")))
check("expressions", lambda: list(rows.annotate(x=F("price") * 2, low=Lower("name")).values_list("x", "low")))
check("parts of dates", lambda: list(rows.annotate(y=ExtractYear("day"), m=TruncMonth("day")).values_list("y", "m")))
check("iterator", lambda: [thing.id for thing in rows.iterator(chunk_size=2)])
check("distinct", lambda: list(Thing.objects.values_list("flag").distinct().order_by("flag")))


def rolled_back():
    with transaction.atomic():
        Thing(id=50, name="new").save(force_insert=True)
        seen = Thing.objects.filter(id=50).count()
        transaction.set_rollback(True)
    return [seen, Thing.objects.filter(id=50).count()]


check("create in a transaction", rolled_back)
check("bulk_create", lambda: len(Thing.objects.bulk_create([Thing(id=60), Thing(id=61, name="b")])))
check("bulk_create stored", lambda: list(Thing.objects.filter(id__gte=60).order_by("id").values_list("id", "name")))
check("update", lambda: Thing.objects.filter(id=60).update(name="set"))
check("delete", lambda: Thing.objects.filter(id__gte=60).delete()[0])
