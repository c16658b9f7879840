//! Checks every line of scipy/table.txt, which scipy/table.py wrote.

use super::{Looks, PairedDifferences, beta, drift, normal, student, welch};

fn close(found: f64, expected: f64, error: f64) -> bool {
    (found - expected).abs() <= error * expected.abs().max(1e-300)
}

#[test]
fn values_are_those_of_scipy() {
    let mut looks = Looks::new(0.05, 24);
    let table = include_str!("scipy/table.txt");
    for line in table.lines() {
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap();
        let numbers: Vec<f64> = words.map(|word| word.parse().unwrap()).collect();
        let (found, expected, error) = match (kind, numbers.as_slice()) {
            ("critical", [degrees, p, value]) => (student::critical(*p, *degrees), *value, 1e-9),
            ("tails", [degrees, t, value]) => (student::tails(*t, *degrees), *value, 1e-9),
            ("beta", [a, b, x, value]) => (beta::incomplete(*a, *b, *x), *value, 1e-11),
            ("above", [z, value]) => (normal::above(*z), *value, 1e-11),
            // The value at 0.5 is 0, so an offset is added.
            ("upper", [p, value]) => (normal::upper(*p) + 10.0, *value + 10.0, 1e-12),
            // scipy integrates five looks at random points.
            ("look", [pairs, _, z]) => (normal::upper(looks.look(*pairs as usize) / 2.0), *z, 2e-4),
            ("paired", [p, low, high]) => {
                let one = [101.0, 104.5, 99.2, 110.1, 103.3, 98.7, 105.0, 100.9];
                let two = [95.3, 97.0, 96.6, 99.4, 101.0, 94.8, 93.9, 97.7];
                let paired = PairedDifferences::of_ratios(&one, &two).unwrap().estimate();
                let (from, to) = paired.interval(0.05);
                assert!(close(from, *low, 1e-9) && close(to, *high, 1e-9), "{line}: {from} {to}");
                (paired.p(), *p, 1e-9)
            }
            ("welch", [p, low, high]) => {
                let one = [101.0, 104.5, 99.2, 110.1, 103.3, 98.7, 105.0, 100.9];
                let two = [95.3, 97.0, 96.6, 99.4, 101.0, 94.8];
                let found = welch(&one.map(f64::ln), &two.map(f64::ln)).unwrap();
                let (from, to) = found.interval(0.05);
                assert!(close(from, *low, 1e-9) && close(to, *high, 1e-9), "{line}: {from} {to}");
                (found.p(), *p, 1e-9)
            }
            ("drift", [slope, p]) => {
                let values = [2.0, 2.3, 2.1, 2.9, 2.8, 3.3, 3.1];
                let found =
                    drift(&[[1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0].into_iter().zip(values).collect()]).unwrap();
                assert!(close(found.slope, *slope, 1e-9), "{line}: {found:?}");
                (found.p, *p, 1e-9)
            }
            _ => panic!("{line}"),
        };
        assert!(close(found, expected, error), "{line}: {found}");
    }
    assert!(table.lines().count() > 180);
}
