//! Prints how far predictions of load are from what came, on ten shapes of bursts, and what parameters make of other loads.
//!
//! A server serves 100 requests in a period. What comes beyond that waits. The load of a period is what wants to be served in it: what
//! waits from before, and what comes. Predictions are made from what was served and what waited in the periods before.
//!
//! `cargo run --release -p stripewise-optimisation --example burst_figures`

use stripewise_optimisation::{BurstParameters, bls_esm, burst_ratio, esm};

const SERVED_MOST: f64 = 100.0;
const PERIODS: usize = 240;

/// What a server saw in a period, in requests.
struct Seen {
    served: f64,
    wanted: f64,
}

fn seen(coming: &[f64]) -> Vec<Seen> {
    let mut waiting = 0.0;
    let serve = |coming: &f64| {
        let wanted = waiting + coming;
        let served = f64::min(wanted, SERVED_MOST);
        waiting = wanted - served;
        Seen { served, wanted }
    };
    coming.iter().map(serve).collect()
}

/// Numbers that look random, the same each time: a generator of Lehmer's.
struct Draws(u64);

impl Draws {
    fn between(&mut self, least: f64, most: f64) -> f64 {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        least + (most - least) * self.0 as f64 / f64::from(0x7fff_ffff)
    }
}

/// What comes in each period, by the number of the period.
type Shape = fn(usize) -> f64;

/// The shapes were written down before a prediction was tried on them.
const SHAPES: [(&str, Shape); 10] = [
    ("step", |at| if at % 60 < 45 { 40.0 } else { 160.0 }),
    ("ramp", |at| if at % 60 < 40 { 40.0 } else { 40.0 + 12.0 * (at % 60 - 40) as f64 }),
    ("spike of one period", |at| if at % 40 == 30 { 500.0 } else { 40.0 }),
    ("train of spikes", |at| if at % 40 >= 30 && at % 2 == 0 { 300.0 } else { 30.0 }),
    ("crowd that fades", |at| 40.0 + if at % 60 >= 30 { 300.0 * 0.8_f64.powi((at % 60 - 30) as i32) } else { 0.0 }),
    ("bell", |at| 40.0 + 140.0 * (-((at % 60) as f64 - 30.0).powi(2) / 50.0).exp()),
    ("sawtooth", |at| 8.0 * (at % 24) as f64),
    ("two peaks", |at| match at % 60 {
        20..=23 => 350.0,
        27..=33 => 180.0,
        _ => 25.0,
    }),
    ("day and night", |at| 70.0 + 60.0 * (at as f64 * std::f64::consts::TAU / 80.0).sin()),
    // A period's backlog is gone before the prediction that it leads to is of use.
    ("adversarial: 190, then nothing", |at| if at % 2 == 0 { 190.0 } else { 0.0 }),
];

/// 40 loads with bursts of other shapes, heights and lengths, beside noise. By these alone the parameters were chosen.
fn random_loads() -> Vec<Vec<f64>> {
    let mut draws = Draws(1);
    let load = |_| {
        let (base, mut coming) = (draws.between(5.0, 60.0), Vec::new());
        while coming.len() < PERIODS {
            let quiet = draws.between(10.0, 50.0) as usize;
            coming.extend((0..quiet).map(|_| base * draws.between(0.8, 1.2)));
            let (height, length, kind) =
                (draws.between(80.0, 400.0), draws.between(2.0, 16.0).floor(), draws.between(0.0, 3.0));
            coming.extend((0..length as usize).map(|at| match kind as usize {
                0 => height * (at + 1) as f64 / length,
                1 => height,
                _ => height * (1.0 - at as f64 / length),
            }));
        }
        coming.truncate(PERIODS);
        coming
    };
    (0..40).map(load).collect()
}

/// Means of the absolute errors of both predictions, and of smoothing what was wanted: of all periods but the first.
fn errors(coming: &[f64], parameters: &BurstParameters) -> [f64; 3] {
    let seen = seen(coming);
    let (mut smooth, mut burst, mut wanted) = (seen[0].served, seen[0].served, seen[0].wanted);
    let mut sums = [0.0; 3];
    for pair in seen.windows(2) {
        let [now, next] = pair else { unreachable!("windows of two") };
        let ratio = burst_ratio(now.wanted.round() as u64, now.served.round() as u64);
        smooth = esm(parameters.lambda, smooth, now.served);
        burst = bls_esm(parameters, burst, now.served, ratio);
        wanted = esm(parameters.lambda, wanted, now.wanted);
        for (sum, predicted) in sums.iter_mut().zip([smooth, burst, wanted]) {
            *sum += (predicted - next.wanted).abs() / (seen.len() - 1) as f64;
        }
    }
    sums
}

fn main() {
    let chosen = BurstParameters::default();
    for (name, shape) in SHAPES {
        let coming: Vec<f64> = (0..PERIODS).map(shape).collect();
        let [smooth, burst, wanted] = errors(&coming, &chosen);
        println!("{name}: ESM {smooth:.2}, BLS-ESM {burst:.2}, ESM of what was wanted {wanted:.2}");
    }
    let loads = random_loads();
    let total = |parameters: &BurstParameters| -> f64 { loads.iter().map(|load| errors(load, parameters)[1]).sum() };
    let mut best = (f64::INFINITY, chosen);
    for lambda in [0.3, 0.5, 0.7, 0.875] {
        for (mu, nu) in [(0.95, 1.05), (0.8, 1.25), (0.5, 1.5), (0.5, 2.0)] {
            let parameters = BurstParameters { lambda, mu, nu };
            let sum = total(&parameters);
            if sum < best.0 {
                best = (sum, parameters);
            }
        }
    }
    let BurstParameters { lambda, mu, nu } = best.1;
    println!("chosen / best of the grid on random loads: {:.4}", total(&chosen) / best.0);
    println!("best of the grid on random loads: lambda {lambda}, mu {mu}, nu {nu}");
}
