#!/bin/sh
# Layouts of pool 'p' for Lustre, by stripewise export.
# No trace: priced with 16 processes that read and write each region at random places, in requests as long as its round and a quarter of it, on emulated servers.
set -eu

# data/shared.dat
# predicted: 1.001 times the time of the layout
# lost: 12 objects for 8 servers in [12MiB, end): one more request each
lfs migrate -E 64K -L mdt -E 12M -c 2 -S 192K -o 10,11 -p ignore -E eof -c 12 -S 64K -o 0,1,2,3,4,5,10,10,10,11,11,11 -p ignore data/shared.dat

# out dir/*.h5 (files to come)
# predicted: 0.722 times the time of the layout
# lost: widths are multiples of 64KiB in a ratio of integers: 64KiB, 128KiB instead of 48KiB, 112KiB
# lost: 10 objects for 8 servers in [0B, end): one more request each
# lost: the default of directory out dir: all new files, not only those that out dir/*.h5 matches, get it; files and directories in it keep what they have
lfs setstripe -c 10 -S 64K -o 0,1,2,3,4,5,10,10,11,11 -p ignore 'out dir'

# What was set:
lfs getstripe --yaml data/shared.dat
lfs getstripe -d --yaml 'out dir'
