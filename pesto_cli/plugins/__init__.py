"""Plug-ins: objects that installed packages add to pesto by entry points in their metadata.

    [project.entry-points."pesto.strategies"]
    least-loaded = "my_package.strategies:least_loaded"

To add a group, add a line to `GROUPS` and create the `Registry` that it names.
"""

from pesto_cli.plugins.installed import GROUPS as GROUPS
from pesto_cli.plugins.installed import Group as Group
from pesto_cli.plugins.installed import PlugIn as PlugIn
from pesto_cli.plugins.installed import UnusableError as UnusableError
from pesto_cli.plugins.installed import offered as offered
from pesto_cli.plugins.installed import plug_ins as plug_ins
from pesto_cli.plugins.registry import Registry as Registry
from pesto_cli.plugins.registry import answered as answered
from pesto_cli.plugins.registry import called_with as called_with
from pesto_cli.plugins.registry import registry_of as registry_of
