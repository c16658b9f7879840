for metric in mean_ns iops; do
    expect slower.$metric.json '.metrics[0].verdict == "worse"'
    expect faster.$metric.json '.metrics[0].verdict == "better"'
done
# 20 µs more than 200 µs plus the overhead of the path.
expect slower.mean_ns.json '.metrics[0] | .b - .a | . > 18000 and . < 22000'
expect slower.mean_ns.json '.metrics[0] | .ratio_low > 1.05 and .ratio_high < 1.105'
expect same.json '.metrics[0] | .verdict == "same" and .name == "iops"'
