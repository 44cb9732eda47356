"""Questions of our own, declared as data and answered by the same store, worker, search and judge as all others."""
