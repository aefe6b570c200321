//! Sparse files, as the programs that copy and pack them see them.

mod common;

use common::{TestPool, need};

/// A file of 1 TB with data in four places, in pieces of less and more than a stripe, and one at its end.
const MAKE: &str = "
truncate -s 1T big
put() { head -c $2 /dev/urandom | dd of=big bs=1M seek=$1 oflag=seek_bytes conv=notrunc status=none; }
put 0 5000; put 123456789 300000; put 600000000000 1; put 1099511627000 776
";

/// Each of them would read for hours if it were not told where the holes are.
#[test]
fn programs_copy_a_terabyte_of_holes_in_no_time() {
    need("tar");
    let pool = TestPool::new();
    pool.sh(&format!(
        "{MAKE}
[ $(stat -c %b big) -lt 2000 ] && [ $(du -k big | cut -f 1) -lt 1000 ]
cp big auto
cp --sparse=auto big $OUT/copy
tar -cSf $OUT/big.tar big && [ $(stat -c %s $OUT/big.tar) -lt 1000000 ]
mkdir un && tar -C un -xSf $OUT/big.tar
[ $(stat -c %s auto un/big | sort -u) = 1099511627776 ] && [ $(stat -c %b un/big) -lt 2000 ]
for copy in auto $OUT/copy un/big; do
    for part in '0 8192' '123456000 400000' '599999999000 5000' '1099511620000 9000'; do
        cmp -i ${{part% *}} -n ${{part#* }} big $copy
    done
done
# What another program has written is seen by one that looks for data.
printf x | dd of=big bs=1M seek=777777777777 oflag=seek_bytes conv=notrunc status=none
python3 -c 'import os; f = os.open(\"big\", 0); assert os.lseek(f, 700000000000, os.SEEK_DATA) // 4096 == 777777777777 // 4096'
"
    ));
    // By another mount, where it is not open.
    pool.sh("[ $(stat -c %b big) -lt 2000 ] && cp big again && [ $(stat -c %b again) -lt 2000 ]");
}

#[test]
fn rsync_makes_sparse_copies() {
    need("rsync");
    let pool = TestPool::new();
    pool.sh("truncate -s 64M big
head -c 9000 /dev/urandom | dd of=big bs=1M seek=40000000 oflag=seek_bytes conv=notrunc status=none
rsync -S big copy && cmp big copy && [ $(stat -c %b copy) -lt 2000 ]
rsync -S --inplace big $OUT/copy && cmp big $OUT/copy && rsync -S $OUT/copy back && [ $(stat -c %b back) -lt 2000 ]");
}

/// The kernel writes pages of a map back in its own time, and does not tell a server that it has changed ones.
#[test]
fn what_was_written_through_a_map_is_not_in_a_hole() {
    let pool = TestPool::new();
    pool.python(
        "
import mmap
f = open('f', 'w+b', buffering=0); f.truncate(1 << 24)
m = mmap.mmap(f.fileno(), 1 << 24)
m[10_000_000] = 7
assert os.lseek(f.fileno(), 0, os.SEEK_DATA) <= 10_000_000 and os.lseek(f.fileno(), 10_000_000, os.SEEK_HOLE) > 10_000_000
other = os.open('f', os.O_RDONLY)
assert os.lseek(other, 0, os.SEEK_DATA) <= 10_000_000
m.close(); f.close(); os.close(other)
",
    );
    pool.python(
        "
other = os.open('f', os.O_RDONLY)
assert os.lseek(other, 0, os.SEEK_DATA) // 4096 == 10_000_000 // 4096
",
    );
}
