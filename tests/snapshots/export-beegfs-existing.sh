#!/bin/sh
# Layouts of pool 'p' for BeeGFS, by stripewise export.
# No trace: priced with 16 processes that read and write each region at random places, in requests as long as its round and a quarter of it, on emulated servers.
set -eu

# data/shared.dat
# predicted: 3.841 times the time of the layout
# lost: 3 regions folded into one: the whole file is as [12MiB, end) was to be
# lost: one tier only: hdd, which was to hold 50%, holds all; ssd nothing
# lost: no bytes on the metadata tier
# lost: the named targets in an order that BeeGFS chooses; they must be of the pool of the file's directory
# lost: a copy takes its name: hard links to it keep the old bytes; no program may write meanwhile
test '!' -L data/shared.dat
beegfs entry create file --chunk-size 64Ki --num-targets 6 --targets 101,102,103,104,105,106 data/.stripewise-new.shared.dat
cp -p data/shared.dat data/.stripewise-new.shared.dat
cmp data/shared.dat data/.stripewise-new.shared.dat
mv -f data/.stripewise-new.shared.dat data/shared.dat

# out dir/*.h5 (files to come)
# predicted: 1.005 times the time of the layout
# lost: one tier only: hdd, which was to hold 56%, holds all; ssd nothing
# lost: a chunk is one power of two for all targets: 64KiB instead of 48KiB
# lost: the default of directory out dir: all new files, not only those that out dir/*.h5 matches, get it; files and directories in it keep what they have
beegfs entry set --chunk-size 64Ki --num-targets 6 --pool hdd 'out dir'

# What was set:
beegfs entry info data/shared.dat
beegfs entry info 'out dir'
