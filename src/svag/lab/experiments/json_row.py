"""Results as JSON values."""

from svag.stats.samples import JsonRow as JsonRow
from svag.stats.samples import json_fields_of as json_fields_of
from svag.stats.samples import json_value as json_value
