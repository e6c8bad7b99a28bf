"""`proxyhash index`: adding to an index, and its maintenance."""

from cyclopts import App

from proxyhash.cli.index import adding, calibration, copies, duplicates, exchange, maintenance

index = App(name="index", help="Create and maintain an index of codes.")
index.command(adding.add, name="add")
index.command(maintenance.info, name="info")
index.command(adding.remove, name="remove")
index.command(maintenance.verify, name="verify")
index.command(maintenance.compact, name="compact")
index.command(copies.backup, name="backup")
index.command(copies.restore, name="restore")
index.command(copies.salvage, name="salvage")
index.command(maintenance.migrate, name="migrate")
index.command(adding.upgrade, name="upgrade")
index.command(adding.refine, name="refine")
index.command(exchange.export, name="export")
index.command(exchange.import_, name="import")
index.command(duplicates.duplicates, name="duplicates")
index.command(calibration.calibrate, name="calibrate")
