NGPU=${NGPU:-"8"} LOG_RANK=0 CONFIG_FILE="tt_scout.toml" ./run_train.sh --compile.enable
