#!/usr/bin/env python3
"""Writes table.txt, which src/stats/scipy_tests.rs reads: values of scipy. Made once, with scipy 1.17.1."""
import numpy
from scipy import special, stats

for degrees in (1, 2, 3, 5, 7, 11, 23, 47, 100, 1000):
    for p in (1e-6, 1e-4, 0.003, 0.01, 0.05, 0.1, 0.5, 0.9):
        print("critical", degrees, p, repr(float(stats.t.isf(p / 2, degrees))))
    for t in (0.0, 0.01, 0.5, 1.0, 2.0, 5.0, 20.0, 300.0):
        print("tails", degrees, t, repr(float(2 * stats.t.sf(t, degrees))))
for a, b, x in ((0.5, 0.5, 0.1), (2, 3, 0.4), (11.5, 0.5, 0.97), (50, 0.5, 0.2), (500, 0.5, 0.999)):
    print("beta", a, b, x, repr(float(special.betainc(a, b, x))))
for z in (-8.0, -3.0, -0.3, 0.0, 0.7, 1.96, 2.5, 2.9, 5.0, 12.0, 30.0):
    print("above", z, repr(float(stats.norm.sf(z))))
for p in (1e-12, 1e-6, 0.0125, 0.025, 0.5, 0.9):
    print("upper", p, repr(float(stats.norm.isf(p))))

# Looks at uneven times: the bounds by integrating the multivariate normal distribution over all looks at once, which is
# another way than the recursion over looks.
times = numpy.array([8, 12, 16, 20, 24]) / 24
quarter = stats.norm.isf(0.05 / 4)
spent = [4 * stats.norm.sf(quarter / t**0.5) for t in times]
bounds = []
for k in range(len(times)):
    cov = numpy.array([[(min(a, b) / max(a, b)) ** 0.5 for a in times[: k + 1]] for b in times[: k + 1]])
    low, high = 0.5, 8.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        upper = numpy.array(bounds + [middle])
        inside = stats.multivariate_normal.cdf(upper, cov=cov, lower_limit=-upper, abseps=1e-9, releps=1e-9, maxpts=4_000_000)
        low, high = (middle, high) if 1 - inside > spent[k] else (low, middle)
    bounds.append((low + high) / 2)
    print("look", round(times[k] * 24), 24, repr(float(bounds[-1])))

# Pairs: a paired t test and its interval.
one = numpy.array([101.0, 104.5, 99.2, 110.1, 103.3, 98.7, 105.0, 100.9])
two = numpy.array([95.3, 97.0, 96.6, 99.4, 101.0, 94.8, 93.9, 97.7])
test = stats.ttest_rel(numpy.log(one), numpy.log(two))
interval = test.confidence_interval(0.95)
print("paired", repr(float(test.pvalue)), repr(float(interval.low)), repr(float(interval.high)))

# Samples that are not paired: Welch's t test and its interval.
test = stats.ttest_ind(numpy.log(one), numpy.log(two[:6]), equal_var=False)
interval = test.confidence_interval(0.95)
print("welch", repr(float(test.pvalue)), repr(float(interval.low)), repr(float(interval.high)))

# A drift of one group: ordinary regression.
line = stats.linregress([1, 2, 3, 4, 5, 7, 8], [2.0, 2.3, 2.1, 2.9, 2.8, 3.3, 3.1])
print("drift", repr(float(line.slope)), repr(float(line.pvalue)))
