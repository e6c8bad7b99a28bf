"""Simulated loss of power and failing disks.

`record.c` is loaded into a process with LD_PRELOAD and records every change of files below one folder: writes, changes
of size, fsyncs, and changes of names. `replay.py` computes from such a record what a disk may hold if the power is lost
after any of these operations. `recording.py` runs a workload of `workloads.py` under the recorder and checks the states.

The model of a disk
-------------------
- Data is on the disk after an fsync of its file. Every write since then is independently lost, kept, cut at a sector of
  512 bytes, or kept in some of its sectors; or the file has its new size, and zeros instead of the data.
- Names (create, rename, exchange, link, unlink, mkdir, rmdir) are changed in order: of those that are not synced, a
  first part is kept. On a strict disk they are synced by an fsync of their folder only; on a journaling one (as ext4)
  an fsync of any file or folder syncs all earlier changes of names.
- A write that is not synced can be lost although a later change of a name is kept (as on XFS, or ext4 without ordering).
- After a failed fsync, the writes before it may be lost for good, even if a later fsync succeeds.

What it does not cover
----------------------
- Writes through a shared mmap. A recording that contains one is refused; none of our writers makes one. The file
  `-shm` of SQLite is left out: it is rebuilt after a restart.
- Disks that report an fsync before the data is stable, and sectors that are damaged by a torn write (SQLite's "powersafe
  overwrite": bytes that are not written do not change).
- Changes of names that are kept out of order within one folder, and several disks.
- Several writing processes: a workload is one process, with any number of threads.
- Permissions, times, and links that lead out of the folder. Linux only: other systems have no LD_PRELOAD.
- Direct system calls that bypass the C library. They are noticed: a recording counts only if replaying all of it gives
  the folder that the workload left, byte for byte.
"""
