//! Programs whose system calls are filtered run as without the library: it makes no call of its own in them.

mod common;

use common::{TestPool, both_ways, compile, succeeded};

both_ways! {
    a_filter_by_prctl,
    a_filter_by_number,
    the_strict_mode,
    a_filter_from_before_the_program,
}

/// Runs `filters.c`, also while its calls are recorded.
fn in_c(preload: bool, way: &str) {
    let pool = TestPool::new();
    let program = pool.path("out/filters");
    compile("filters.c", &program);
    let (program, file) = (program.to_str().expect("text"), pool.path("mnt/f"));
    for traced in [false, true] {
        let mut command = pool.command(preload, &[program, way, file.to_str().expect("text")]);
        if traced {
            command.env("STRIPEWISE_TRACE", pool.path("out"));
        }
        succeeded(way, &command.output().expect("the program"));
        let bytes = pool.python(false, "sys.stdout.write(open('f').read())");
        assert_eq!(&bytes[..9007], "a".repeat(9000) + "written", "{way}, traced: {traced}");
    }
}

fn a_filter_by_prctl(preload: bool) {
    in_c(preload, "prctl");
}

fn a_filter_by_number(preload: bool) {
    in_c(preload, "syscall");
}

fn the_strict_mode(preload: bool) {
    in_c(preload, "strict");
}

fn a_filter_from_before_the_program(preload: bool) {
    in_c(preload, "exec");
}
