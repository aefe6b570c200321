//! What seeks take by the gap that they cross, as it was measured.

/// Startups of a server by the gap to the request before, measured: points between which they grow.
#[derive(Debug, Clone, PartialEq)]
pub struct SeekMap {
    points: Vec<(u64, f64)>,
}

/// Most points of a map.
const MOST_POINTS: usize = 32;

impl SeekMap {
    /// Of points (gap in bytes, mean startup in seconds) in the order of their gaps.
    ///
    /// # Errors
    /// What is wrong: no point or more than 32, gaps that do not grow, a time that is no time or falls.
    pub fn new(points: Vec<(u64, f64)>) -> Result<Self, String> {
        if points.is_empty() || points.len() > MOST_POINTS {
            return Err(format!("{} points: give 1 to {MOST_POINTS}", points.len()));
        }
        if let Some((gap, startup_s)) = points.iter().find(|(gap, startup_s)| *gap == 0 || !is_time(*startup_s)) {
            return Err(format!("a gap of {gap} bytes with {startup_s} s: give a gap above 0 and a time up to a day"));
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            let [(before, _), (gap, _)] = [pair[0], pair[1]];
            return Err(format!("the gap of {gap} bytes after {before}: gaps have to grow, and times may not fall"));
        }
        Ok(Self { points })
    }

    /// The map that is nearest to `means` (gap in bytes, ascending, and mean startup in seconds, of as many requests each) in the
    /// least squares of all that never fall: neighbours that fall get their common mean (pool adjacent violators; Barlow et al.:
    /// *Statistical Inference under Order Restrictions*, 1972). `None` without means. O(points).
    pub fn isotonic(means: &[(u64, f64)]) -> Option<Self> {
        // Mean and number of points.
        let mut blocks: Vec<(f64, usize)> = Vec::with_capacity(means.len());
        for (_, mean_s) in means {
            let mut last = (*mean_s, 1);
            while let Some(before) = blocks.pop_if(|before| before.0 > last.0) {
                let count = before.1 + last.1;
                last = ((before.0 * before.1 as f64 + last.0 * last.1 as f64) / count as f64, count);
            }
            blocks.push(last);
        }
        let times = blocks.iter().flat_map(|(mean_s, count)| std::iter::repeat_n(*mean_s, *count));
        Self::new(means.iter().map(|(gap, _)| *gap).zip(times).collect()).ok()
    }

    /// The points, by gap.
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }
}

fn is_time(seconds: f64) -> bool {
    (0.0..=86_400.0).contains(&seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_fall_have_their_mean() {
        let times = |means: &[f64]| -> Vec<f64> {
            let means: Vec<_> = means.iter().enumerate().map(|(at, mean)| (1 << (10 + at), *mean)).collect();
            SeekMap::isotonic(&means).unwrap().points().iter().map(|point| point.1).collect()
        };
        assert_eq!(times(&[1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
        assert_eq!(times(&[1.0, 4.0, 2.0, 5.0]), [1.0, 3.0, 3.0, 5.0]);
        assert_eq!(times(&[4.0, 2.0, 0.0, 6.0]), [2.0, 2.0, 2.0, 6.0]);
        assert_eq!(times(&[1.0, 5.0, 5.0, 2.0]), [1.0, 4.0, 4.0, 4.0]);
        assert_eq!(SeekMap::isotonic(&[]), None);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let refused = |points: &[(u64, f64)]| SeekMap::new(points.to_vec()).unwrap_err();
        assert!(refused(&[]).contains("0 points"));
        assert!(refused(&[(0, 1.0)]).contains("gap of 0 bytes"));
        assert!(refused(&[(1, f64::NAN)]).contains("NaN"));
        assert!(refused(&[(5, 1.0), (5, 2.0)]).contains("have to grow"));
        assert!(refused(&[(5, 2.0), (6, 1.0)]).contains("may not fall"));
        assert!(refused(&(1..40).map(|gap| (gap, 1.0)).collect::<Vec<_>>()).contains("39 points"));
    }
}
