# Loads every program of every object; the work of the kernel's verifier is compared with vmtest/verifier.txt, since
# a careless loop could come close to the verifier's limit. It takes most of a minute.
# timeout: 400
. /guest/lib.sh

biopsy check --programs >programs.json
