#!/bin/sh
# Layouts of pool 'p' for OrangeFS, by stripewise export.
# No trace: priced with 16 processes that read and write each region at random places, in requests as long as its round and a quarter of it, on emulated servers.
set -eu

# data/shared.dat
# predicted: 2.979 times the time of the layout
# lost: 3 regions folded into one: the whole file is as [12MiB, end) was to be
# lost: no bytes on the metadata tier
# lost: no byte beyond 3072TiB: rounds are counted in 32 bits
# lost: a copy takes its name: hard links to it keep the old bytes; no program may write meanwhile
test '!' -L data/shared.dat
mkdir data/.stripewise-new.shared.dat
setfattr -n user.pvfs2.dist_name -v varstrip_dist data/.stripewise-new.shared.dat
setfattr -n user.pvfs2.dist_params -v 'strips:0:64K;1:64K;2:64K;3:64K;4:64K;5:64K;6:192K;7:192K' data/.stripewise-new.shared.dat
setfattr -n user.pvfs2.num_dfiles -v 8 data/.stripewise-new.shared.dat
setfattr -n user.pvfs2.layout -v 4 data/.stripewise-new.shared.dat
setfattr -n user.pvfs2.server_list -v '00008 tcp://io0:3334 tcp://io1:3334 tcp://io2:3334 tcp://io3:3334 tcp://io4:3334 tcp://io5:3334 tcp://fast0:3334 tcp://fast1:3334' data/.stripewise-new.shared.dat
touch data/.stripewise-new.shared.dat/file
cp -p data/shared.dat data/.stripewise-new.shared.dat/file
cmp data/shared.dat data/.stripewise-new.shared.dat/file
mv -f data/.stripewise-new.shared.dat/file data/shared.dat
rmdir data/.stripewise-new.shared.dat

# out dir/*.h5 (files to come)
# predicted: 1.000 times the time of the layout
# lost: no byte beyond 2048TiB: rounds are counted in 32 bits
# lost: the default of directory out dir: all new files, not only those that out dir/*.h5 matches, get it; files and directories in it keep what they have
setfattr -n user.pvfs2.dist_name -v varstrip_dist 'out dir'
setfattr -n user.pvfs2.dist_params -v 'strips:0:48K;1:48K;2:48K;3:48K;4:48K;5:48K;6:112K;7:112K' 'out dir'
setfattr -n user.pvfs2.num_dfiles -v 8 'out dir'
setfattr -n user.pvfs2.layout -v 4 'out dir'
setfattr -n user.pvfs2.server_list -v '00008 tcp://io0:3334 tcp://io1:3334 tcp://io2:3334 tcp://io3:3334 tcp://io4:3334 tcp://io5:3334 tcp://fast0:3334 tcp://fast1:3334' 'out dir'

# What was set:
pvfs2-viewdist -f data/shared.dat
getfattr -n user.pvfs2.dist_name 'out dir'
getfattr -n user.pvfs2.dist_params 'out dir'
getfattr -n user.pvfs2.num_dfiles 'out dir'
getfattr -n user.pvfs2.layout 'out dir'
getfattr -n user.pvfs2.server_list 'out dir'
