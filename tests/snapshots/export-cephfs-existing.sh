#!/bin/sh
# Layouts of pool 'p' for CephFS, by stripewise export.
# No trace: priced with 16 processes that read and write each region at random places, in requests as long as its round and a quarter of it, on emulated servers.
set -eu

# data/shared.dat
# predicted: 5.886 times the time of the layout
# lost: 3 regions folded into one: the whole file is as [12MiB, end) was to be
# lost: one tier only: hdd, which was to hold 50%, holds all; ssd nothing
# lost: no bytes on the metadata tier
# lost: a hash chooses the server of each object: two of one stripe can be on the same
# lost: a copy takes its name: hard links to it keep the old bytes; no program may write meanwhile
test '!' -L data/shared.dat
touch data/.stripewise-new.shared.dat
setfattr -n ceph.file.layout.stripe_unit -v 65536 data/.stripewise-new.shared.dat
setfattr -n ceph.file.layout.object_size -v 4194304 data/.stripewise-new.shared.dat
setfattr -n ceph.file.layout.stripe_count -v 6 data/.stripewise-new.shared.dat
setfattr -n ceph.file.layout.pool -v hdd data/.stripewise-new.shared.dat
cp -p data/shared.dat data/.stripewise-new.shared.dat
cmp data/shared.dat data/.stripewise-new.shared.dat
mv -f data/.stripewise-new.shared.dat data/shared.dat

# out dir/*.h5 (files to come)
# predicted: 1.903 times the time of the layout
# lost: one tier only: hdd, which was to hold 56%, holds all; ssd nothing
# lost: one stripe unit, a multiple of 64KiB of at most 128MiB: 64KiB instead of 48KiB
# lost: a hash chooses the server of each object: two of one stripe can be on the same
# lost: the default of directory out dir: all new files, not only those that out dir/*.h5 matches, get it; files and directories in it keep what they have
setfattr -n ceph.dir.layout.stripe_unit -v 65536 'out dir'
setfattr -n ceph.dir.layout.object_size -v 4194304 'out dir'
setfattr -n ceph.dir.layout.stripe_count -v 6 'out dir'
setfattr -n ceph.dir.layout.pool -v hdd 'out dir'

# What was set:
getfattr -n ceph.file.layout data/shared.dat
getfattr -n ceph.dir.layout 'out dir'
