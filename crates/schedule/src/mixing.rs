//! The gap between consecutive requests of a server of which several users' programs each see their own part.

/// What one user's programs do on a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UserTraffic {
    /// Requests of the time that is looked at.
    pub requests: f64,
    /// Moving average of the gap among these requests alone, in bytes.
    pub gap_bytes: f64,
}

/// The gap over all users, in bytes; `None` without a request. The users' requests are taken to be mixed at random, and those
/// of two users to be `apart_bytes` from each other: with the shares `s_u` of the requests it is
/// `sum s_u^2 gap_u + (1 - sum s_u^2) apart`. Exact with one user. O(users).
pub fn mixed_gap(users: impl IntoIterator<Item = UserTraffic> + Clone, apart_bytes: f64) -> Option<f64> {
    let all: f64 = users.clone().into_iter().map(|user| user.requests).sum();
    if all <= 0.0 {
        return None;
    }
    let (mut within, mut same) = (0.0, 0.0);
    for user in users {
        let together = (user.requests / all).powi(2);
        within += together * user.gap_bytes;
        same += together;
    }
    Some(within + (1.0 - same).max(0.0) * apart_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_is_exact_and_two_halves_are_apart_half_the_time() {
        let user = |requests, gap_bytes| UserTraffic { requests, gap_bytes };
        assert_eq!(mixed_gap([], 100.0), None);
        assert_eq!(mixed_gap([user(0.0, 5.0)], 100.0), None);
        assert_eq!(mixed_gap([user(7.0, 5.0)], 100.0), Some(5.0));
        assert_eq!(mixed_gap([user(7.0, 0.0), user(7.0, 0.0)], 100.0), Some(50.0));
    }
}
