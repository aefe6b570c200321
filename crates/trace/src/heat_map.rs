//! [`HeatMap`]: amounts that are spread over a plane of equal cells, exactly and in constant time each.

use std::ops::Range;

/// Equal cells along one axis; cell `i` begins at `from + i * cell`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Where the first cell begins.
    pub from: u64,
    /// Length of a cell, at least 1.
    pub cell: u64,
    /// How many there are, at least 1.
    pub cells: usize,
}

impl Axis {
    /// At most `most` cells over `range`, each a multiple of `multiple` long; one cell where the range is empty.
    pub fn over(range: Range<u64>, most: usize, multiple: u64) -> Self {
        let length = range.end.saturating_sub(range.start).max(1);
        let least = length.div_ceil(most.max(1) as u64);
        let cell = least.checked_next_multiple_of(multiple.max(1)).unwrap_or(least);
        Self { from: range.start, cell, cells: length.div_ceil(cell) as usize }
    }

    /// The cell that holds `at`; what lies outside counts to the nearest.
    pub fn cell_of(&self, at: u64) -> usize {
        ((at.saturating_sub(self.from) / self.cell) as usize).min(self.cells - 1)
    }

    /// `amount` spread evenly over `range`: the first cell, those in between, the last. Whole numbers, and their sum is
    /// `amount`: what does not divide goes to the last. An empty range is a point.
    fn parts(&self, range: &Range<u64>, amount: u128) -> [(Range<usize>, u128); 3] {
        let (first, last) = (self.cell_of(range.start), self.cell_of(range.end.saturating_sub(1).max(range.start)));
        if first == last {
            return [(first..first + 1, amount), (last..last, 0), (last..last, 0)];
        }
        let length = u128::from(range.end - range.start);
        let cell = u128::from(self.cell);
        let from = u128::from(self.from);
        let in_first = from + (first as u128 + 1) * cell - u128::from(range.start).max(from);
        let begin = amount * in_first / length;
        let middle = amount * cell / length;
        let between = (last - first - 1) as u128;
        [
            (first..first + 1, begin),
            (first + 1..last, middle),
            (last..last + 1, amount.saturating_sub(begin + middle * between)),
        ]
    }
}

/// What happened in each cell of a plane, such as bytes moved by place in the file and by time.
///
/// Held as second differences, so that a request that covers thousands of cells costs what one in a single cell does.
/// Sums wrap, and come out right because they are whole numbers below 2^128.
#[derive(Debug, Clone)]
pub struct HeatMap {
    across: Axis,
    down: Axis,
    /// One row and one column more than there are cells.
    differences: Vec<u128>,
}

impl HeatMap {
    /// An empty map; 16 bytes a cell.
    pub fn new(across: Axis, down: Axis) -> Self {
        Self { across, down, differences: vec![0; (across.cells + 1) * (down.cells + 1)] }
    }

    /// The axis of columns.
    pub fn across(&self) -> Axis {
        self.across
    }

    /// The axis of rows.
    pub fn down(&self) -> Axis {
        self.down
    }

    /// Spreads `amount` evenly over the rectangle. O(1).
    pub fn add(&mut self, across: Range<u64>, down: Range<u64>, amount: u64) {
        for (rows, in_rows) in self.down.parts(&down, u128::from(amount)) {
            let each = in_rows;
            if rows.is_empty() || each == 0 {
                continue;
            }
            for (columns, value) in self.across.parts(&across, each) {
                if !columns.is_empty() {
                    self.change(columns, rows.clone(), value);
                }
            }
        }
    }

    fn change(&mut self, columns: Range<usize>, rows: Range<usize>, value: u128) {
        let width = self.across.cells + 1;
        let mut at = |column: usize, row: usize, value: u128| {
            let cell = &mut self.differences[row * width + column];
            *cell = cell.wrapping_add(value);
        };
        at(columns.start, rows.start, value);
        at(columns.end, rows.start, value.wrapping_neg());
        at(columns.start, rows.end, value.wrapping_neg());
        at(columns.end, rows.end, value);
    }

    /// The amounts row by row, each at most [`u64::MAX`]. O(cells).
    pub fn into_cells(self) -> Vec<u64> {
        let width = self.across.cells + 1;
        let mut sums = self.differences;
        for row in 0..self.down.cells {
            for column in 0..self.across.cells {
                let at = row * width + column;
                let left = if column > 0 { sums[at - 1] } else { 0 };
                let above = if row > 0 { sums[at - width] } else { 0 };
                let corner = if column > 0 && row > 0 { sums[at - width - 1] } else { 0 };
                sums[at] = sums[at].wrapping_add(left).wrapping_add(above).wrapping_sub(corner);
            }
        }
        let rows = sums.chunks(width).take(self.down.cells);
        rows.flat_map(|row| &row[..self.across.cells]).map(|&sum| u64::try_from(sum).unwrap_or(u64::MAX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Cell by cell along one axis, as the words of [`Axis::parts`] say.
    fn spread(axis: Axis, range: &Range<u64>, amount: u64) -> Vec<u64> {
        let mut cells = vec![0; axis.cells];
        let (first, last) = (axis.cell_of(range.start), axis.cell_of(range.end.saturating_sub(1).max(range.start)));
        let mut left = amount;
        for (cell, value) in (first..last).zip(&mut cells[first..]) {
            let (begin, end) = (axis.from + cell as u64 * axis.cell, axis.from + (cell as u64 + 1) * axis.cell);
            let inside = end - begin.max(range.start);
            *value = (u128::from(amount) * u128::from(inside) / u128::from(range.end - range.start)) as u64;
            left -= *value;
        }
        cells[last] += left;
        cells
    }

    proptest! {
        #[test]
        fn it_is_what_cell_by_cell_gives(
            most in (1_usize..12, 1_usize..12),
            multiple in 1_u64..6,
            requests in prop::collection::vec((0_u64..90, 0_u64..60, 0_u64..90, 0_u64..60, 0_u64..10_000), 0..20),
        ) {
            let axes = (Axis::over(7..120, most.0, multiple), Axis::over(0..131, most.1, 1));
            let mut map = HeatMap::new(axes.0, axes.1);
            let mut plain = vec![0; axes.0.cells * axes.1.cells];
            for (x, width, y, height, amount) in requests {
                let (across, down) = (x + 7..x + 7 + width.min(23), y..y + height);
                map.add(across.clone(), down.clone(), amount);
                // Rows of equal height share what the middle ones get; each row is spread over the columns by itself.
                for (row, in_row) in spread(axes.1, &down, amount).into_iter().enumerate() {
                    for (column, value) in spread(axes.0, &across, in_row).into_iter().enumerate() {
                        plain[row * axes.0.cells + column] += value;
                    }
                }
            }
            prop_assert_eq!(map.into_cells(), plain);
        }

        #[test]
        fn nothing_is_lost_and_nothing_panics(
            from in any::<u64>(), to in any::<u64>(), most in 1_usize..40, multiple in any::<u64>(),
            requests in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), 0_u64..1 << 50), 0..9),
        ) {
            let axis = Axis::over(from.min(to)..from.max(to), most, multiple);
            let mut map = HeatMap::new(axis, axis);
            let mut sum = 0;
            for (a, b, c, d, amount) in requests {
                map.add(a.min(b)..a.max(b), c.min(d)..c.max(d), amount);
                sum += amount;
            }
            prop_assert_eq!(map.into_cells().into_iter().sum::<u64>(), sum);
        }
    }

    #[test]
    fn bytes_of_a_file_fall_on_the_cells_that_hold_them() {
        let mut map = HeatMap::new(Axis::over(0..100, 1, 1), Axis::over(0..1000, 10, 1));
        map.add(0..50, 150..420, 270);
        assert_eq!(map.into_cells(), [0, 50, 100, 100, 20, 0, 0, 0, 0, 0]);
    }
}
