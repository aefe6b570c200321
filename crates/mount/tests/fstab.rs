//! mount(8), umount(8) and a line of /etc/fstab, as root, in a mount namespace of their own.

mod common;

use std::process::{Command, Stdio};

use common::{BIN, TestPool, need, succeeded};

/// Runs a shell script where `/sbin/mount.fuse.stripewise` is installed as the documentation says; `$M`, `$POOL`, `$FSTAB`.
fn with_helper(pool: &TestPool, fstab: &str, script: &str) -> String {
    for program in ["mount", "umount", "findmnt", "unshare"] {
        need(program);
    }
    assert!(rustix::process::geteuid().is_root(), "mount(8) with a line of fstab needs root: run this test as root");
    std::fs::write(pool.path("fstab"), fstab).unwrap();
    // The machine's own programs, and ours beside them.
    let install = "sbin=$(realpath /sbin); mkdir \"$OUT/own\" \"$OUT/sbin\"; mount --bind \"$sbin\" \"$OUT/own\"
        cp -as \"$OUT/own/.\" \"$OUT/sbin/\"; ln -sf \"$BIN\" \"$OUT/sbin/mount.fuse.stripewise\"
        mount --bind \"$OUT/sbin\" \"$sbin\"";
    let script = format!("{install}\n{script}");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", &script]).stdin(Stdio::null());
    command.env("OUT", pool.path("out")).env("BIN", BIN).env("M", pool.mnt()).env("POOL", pool.file());
    let output = command.env("FSTAB", pool.path("fstab")).output().unwrap();
    succeeded(&script, &output)
}

#[test]
fn a_line_of_fstab_mounts_once_and_umount_ends_it() {
    let pool = TestPool::new();
    let options = "defaults,noauto,nofail,_netdev,noatime,noexec,x-systemd.automount,x-systemd.requires=network.target";
    let line = format!("{} {} fuse.stripewise {options} 0 0\n", pool.file().display(), pool.mnt().display());
    let seen = with_helper(
        &pool,
        &line,
        "mount -T \"$FSTAB\" \"$M\"
         findmnt -n -o FSTYPE,SOURCE \"$M\"
         findmnt -n -o OPTIONS \"$M\" | tr , '\\n' | grep -x -e noatime -e noexec -e nosuid -e allow_other | sort
         echo word > \"$M/f\"; chmod 755 \"$M/f\"; if \"$M/f\" 2> /dev/null; then echo executed; fi
         if mount -T \"$FSTAB\" \"$M\" 2> \"$OUT/twice\"; then echo mounted twice; fi; grep -o 'is mounted on' \"$OUT/twice\"
         mount -T \"$FSTAB\" -a -O _netdev
         grep -c \" $M \" /proc/self/mountinfo
         mount -T \"$FSTAB\" -o remount,ro \"$M\"; if touch \"$M/g\" 2> /dev/null; then echo written; fi
         mount -T \"$FSTAB\" -o remount,rw \"$M\"; touch \"$M/g\"
         mount -o remount,ro \"$M\"; if touch \"$M/g\" 2> /dev/null; then echo written; fi
         umount \"$M\"; test ! -e \"$M/f\"; echo ended",
    );
    let expected = format!(
        "fuse.stripewise {}\nallow_other\nnoatime\nnoexec\nnosuid\nis mounted on\n1\nended\n",
        pool.file().display()
    );
    assert_eq!(seen, expected);
}

#[test]
fn mount_by_type_with_options_on_the_command_line() {
    let pool = TestPool::new();
    let seen = with_helper(
        &pool,
        "",
        "mount -t fuse.stripewise -o ro,user,allow_other,default_permissions,threads=3 \"$POOL\" \"$M\"
         if touch \"$M/g\" 2> /dev/null; then echo written; fi; umount \"$M\"
         mount --fake -t fuse.stripewise \"$POOL\" \"$M\"; findmnt \"$M\" || echo faked
         mount -v -n -t fuse.stripewise \"$POOL\" \"$M\" > /dev/null; echo word > \"$M/f\"; umount \"$POOL\"; findmnt \"$M\" || echo gone
         mount -s -t fuse.stripewise -o nosiud \"$POOL\" \"$M\"; cat \"$M/f\"; umount \"$M\"
         if mount -t fuse.stripewise -o nosiud \"$POOL\" \"$M\" 2> \"$OUT/text\"; then echo mounted; fi
         grep -o '`nosiud` is not known' \"$OUT/text\"",
    );
    assert_eq!(seen, "faked\ngone\nword\n`nosiud` is not known\n");
}

/// mount(8) does not tell its helper of `dev` and `suid`, the defaults of other file systems.
#[test]
fn devices_and_set_user_id_programs_where_they_are_asked_for() {
    let pool = TestPool::new();
    let line =
        format!("{} {} fuse.stripewise noauto,allow_dev,allow_suid 0 0\n", pool.file().display(), pool.mnt().display());
    let seen = with_helper(
        &pool,
        &line,
        "flags() { findmnt -n -o OPTIONS \"$M\" | tr , '\\n' | grep -x -e nodev -e nosuid || echo neither; }
         mount -T \"$FSTAB\" \"$M\"; flags; mknod \"$M/null\" c 1 3; echo word > \"$M/null\"
         mount -T \"$FSTAB\" -o remount,ro \"$M\"; flags; umount \"$M\"
         mount -t fuse.stripewise -o allow_dev \"$POOL\" \"$M\"; flags; umount \"$M\"
         mount -t fuse.stripewise \"$POOL\" \"$M\"; flags; umount \"$M\"",
    );
    assert_eq!(seen, "neither\nneither\nnosuid\nnosuid\nnodev\n");
}

/// Who may use a mount is said when it is mounted: what fstab says again is no change, and another word is refused.
#[test]
fn a_remount_does_not_say_that_it_has_shut_other_users_out() {
    let pool = TestPool::new();
    let line = format!("{} {} fuse.stripewise noauto,allow_other 0 0\n", pool.file().display(), pool.mnt().display());
    let seen = with_helper(
        &pool,
        &line,
        "tried() { if \"$BIN\" \"$POOL\" \"$M\" -o remount,$1 2> \"$OUT/said\"; then echo done; else grep -o 'has the option [a-z_]*' \"$OUT/said\"; fi; }
         mount -T \"$FSTAB\" \"$M\"; mount -T \"$FSTAB\" -o remount,ro \"$M\"; tried noallow_other; tried allow_other,rw; touch \"$M/f\"
         umount \"$M\"; \"$BIN\" \"$POOL\" \"$M\" -o noallow_other; tried ro; tried noallow_other,rw; tried allow_other; umount \"$M\"",
    );
    assert_eq!(seen, "has the option allow_other\ndone\ndone\ndone\nhas the option noallow_other\n");
}

/// mount(8) writes flags that it knows before all others, wherever they stand in the line.
#[test]
fn nosuid_wins_over_allow_suid_wherever_it_stands() {
    let pool = TestPool::new();
    let line =
        |options| format!("{} {} fuse.stripewise noauto,{options} 0 0\n", pool.file().display(), pool.mnt().display());
    let seen = with_helper(
        &pool,
        &line("allow_suid,nosuid"),
        "shown() { findmnt -n -o OPTIONS \"$M\" | tr , '\\n' | grep -x nosuid || echo programs run as their owners; umount \"$M\"; }
         mount -T \"$FSTAB\" \"$M\"; shown
         sed -i s/allow_suid,nosuid/nosuid,allow_suid/ \"$FSTAB\"; mount -T \"$FSTAB\" \"$M\"; shown
         sed -i s/nosuid,allow_suid/user,allow_suid/ \"$FSTAB\"; mount -T \"$FSTAB\" \"$M\"; shown
         mount -t fuse.stripewise -o nosuid,allow_suid \"$POOL\" \"$M\"; shown
         \"$BIN\" \"$POOL\" \"$M\" -o nosuid -o allow_suid; shown
         mount -t fuse.stripewise -o allow_suid \"$POOL\" \"$M\"; shown",
    );
    assert_eq!(seen, "nosuid\nnosuid\nnosuid\nnosuid\nnosuid\nprograms run as their owners\n");
}

/// Times of access move by the rules of the file system that holds the names, so it has to be one that moves them always.
#[test]
fn strictatime_works_or_is_refused() {
    let pool = TestPool::new();
    let seen = with_helper(
        &pool,
        "",
        "mount --bind \"$OUT/../ns\" \"$OUT/../ns\"
         mount -o remount,bind,relatime \"$OUT/../ns\"
         if mount -t fuse.stripewise -o strictatime \"$POOL\" \"$M\" 2> \"$OUT/text\"; then echo mounted; umount \"$M\"; fi
         grep -o 'remount,strictatime' \"$OUT/text\" || true
         mount -t fuse.stripewise \"$POOL\" \"$M\"
         if mount -t fuse.stripewise -o remount,strictatime \"$POOL\" \"$M\" 2> \"$OUT/text\"; then echo remounted; fi
         grep -o 'mount option `strictatime`' \"$OUT/text\" || true
         umount \"$M\"
         mount -o remount,bind,strictatime \"$OUT/../ns\"
         mount -t fuse.stripewise -o strictatime \"$POOL\" \"$M\"
         echo word > \"$M/f\"; touch -a -d 2031-01-01 \"$M/f\"
         # A read counts for more than the time that was set if it is later by the kernel's coarse clock (10 ms at most).
         sleep 0.1; cat \"$M/f\"
         # The mount puts the time when it serves the close, for which cat does not wait.
         for try in $(seq 600); do test \"$(stat -c %x \"$M/f\" | cut -c 1-4)\" = 2031 || break; sleep 0.1; done
         test \"$(stat -c %x \"$M/f\" | cut -c 1-4)\" != 2031
         mount -t fuse.stripewise -o remount,ro,strictatime \"$POOL\" \"$M\"; umount \"$M\"",
    );
    assert_eq!(seen, "remount,strictatime\nmount option `strictatime`\nword\n");
}

/// Without a helper installed: mount.fuse3 of the package fuse3 runs the program whose path stands before the `#`.
#[test]
fn mount_fuse3_runs_the_program_that_is_named() {
    need("mount.fuse3");
    let pool = TestPool::new();
    let script = "mount -t fuse \"$BIN#$POOL\" \"$M\" -o noatime,nofail
         findmnt -n -o FSTYPE \"$M\"; echo word > \"$M/f\"; cat \"$M/f\"; umount \"$M\"";
    assert_eq!(with_helper(&pool, "", script), "fuse.stripewise\nword\n");
}

#[test]
fn a_mount_by_fstab_whose_process_died_is_mounted_again() {
    need("pgrep");
    let pool = TestPool::new();
    let line = format!("{} {} fuse.stripewise noauto 0 0\n", pool.file().display(), pool.mnt().display());
    let seen = with_helper(
        &pool,
        &line,
        "die() { kill -KILL $(pgrep -f \"fuse.stripewise $POOL\"); while cat \"$M/f\" > /dev/null 2>&1; do :; done; }
         mount -T \"$FSTAB\" \"$M\"; echo word > \"$M/f\"; die
         mount -T \"$FSTAB\" \"$M\" 2>&1 | grep -o 'its process had died'; cat \"$M/f\"; grep -c \" $M \" /proc/self/mountinfo
         \"$BIN\" --unmount \"$M\"; pgrep -f \"fuse.stripewise $POOL\" || echo ended
         mount -T \"$FSTAB\" \"$M\"; die; \"$BIN\" --unmount \"$M\" 2> \"$OUT/text\"; grep -o 'had died' \"$OUT/text\"
         grep -c \" $M \" /proc/self/mountinfo || true",
    );
    assert_eq!(seen, "its process had died\nword\n1\nended\nhad died\n0\n");
}
