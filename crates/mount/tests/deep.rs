//! A tree through the mount that is so deep that no path leads to its end.

mod common;

use common::{TestPool, need};
use stripewise_layout::Pattern;
use stripewise_store::Store;

#[test]
fn a_tree_of_four_thousand_levels_is_made_read_and_removed() {
    need("python3");
    let pool = TestPool::new();
    let store = Store::open(stripewise_store::Pool::load(&pool.file()).unwrap()).unwrap();
    let layout = store.default_layout().clone();
    // Which layout a file gets depends on its path as soon as there is a rule.
    store.set_rule(&Pattern::new("**/*.dat").unwrap(), &layout).unwrap();
    drop(store);
    let script = r#"
import subprocess
LEVELS = 4000
top = os.getcwd()
os.mkdir(top + "/deep")
os.chdir(top + "/deep")
for level in range(LEVELS):
    with open("f.dat", "w") as file:
        file.write(f"level {level}")
    os.mkdir("d")
    os.chdir("d")
# Up again, by what the mount says is above.
for level in reversed(range(LEVELS)):
    os.chdir("..")
    with open("f.dat") as file:
        assert file.read() == f"level {level}", level
os.chdir(top)
subprocess.run(["rm", "-rf", "deep"], check=True)
assert os.listdir(".") == []
"#;
    pool.python(script);
}
